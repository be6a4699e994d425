"""Reports over rows written by hand: the story, the trace, the queue, cost and health."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from zaia_cli.core.errors import ConfigError, NotFoundError, RefusedError
from zaia_cli.core.ids import new_id
from zaia_cli.core.states import ITEM_STATES, PART_STATES
from zaia_cli.reports.cost import DIMENSIONS, cost_report
from zaia_cli.reports.lookup import find, find_item
from zaia_cli.reports.people import approval, approvals, handoffs
from zaia_cli.reports.queue import item_evidence, queue_items, queue_stats, rejected_inputs
from zaia_cli.reports.reply_state import reply_state
from zaia_cli.reports.status import health
from zaia_cli.reports.story import conversation_story
from zaia_cli.reports.timeline import timeline
from zaia_cli.reports.trace import request_trace
from zaia_cli.store.database import Database

SHARED = Path(__file__).parents[2].parent / "shared"
START = datetime(2026, 10, 6, 12, 0, tzinfo=UTC)
PHONE = "5511900010000"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Rows:
    """Writes rows directly; every row is of company ``organization`` unless it says otherwise."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], organization: str = "loja") -> None:
        self.connection = connection
        self.organization = organization

    def put(self, table: str, **values: Any) -> dict[str, Any]:
        if table not in ("organizations", "workers"):
            values.setdefault("organization_id", self.organization)
        if table in ("steps", "model_calls"):
            self._attempt(values["item_id"], values["attempt_id"])
        bound = [Jsonb(value) if isinstance(value, (dict, list)) else value for value in values.values()]
        columns = sql.SQL(", ").join(map(sql.Identifier, values))
        marks = sql.SQL(", ").join([sql.Placeholder()] * len(values))
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING *").format(sql.Identifier(table), columns, marks)
        row = self.connection.execute(query, bound).fetchone()
        assert row is not None
        return row

    def _attempt(self, item: UUID, attempt: UUID) -> None:
        self.connection.execute(
            """INSERT INTO attempts (organization_id, id, item_id, n, worker, state)
               SELECT %(org)s, %(id)s, %(item)s, 1000 + count(*), 'w', 'succeeded' FROM attempts
               ON CONFLICT DO NOTHING""",
            {"org": self.organization, "id": attempt, "item": item},
        )

    def company(self, timezone: str = "America/Sao_Paulo") -> None:
        self.put("organizations", id=self.organization, name="Loja", timezone=timezone)
        self.put("assistants", slug="atendimento", prompt="p", prompt_version="v1", model="scripted/demo")
        self.put("channel_accounts", channel="whatsapp", account="100", assistant="atendimento")

    def conversation(
        self, address: str = PHONE, *, thread: str = "", aliases: tuple[str, ...] = (), hot: Any = None
    ) -> UUID:
        contact, conversation = new_id(), new_id()
        self.put("contacts", id=contact, address=address, name="Cliente")
        for alias in aliases:
            self.put("contact_aliases", alias=alias, contact_id=contact)
        self.put(
            "conversations",
            id=conversation,
            contact_id=contact,
            channel="whatsapp",
            account="100",
            address=address,
            thread=thread,
            assistant="atendimento",
            created_at=at(0),
        )
        self.put("hot", conversation_id=conversation, seq=2, last_in=2, **(hot or {}))
        return conversation

    def item(self, conversation: UUID, reference: str, state: str = "pending", **values: Any) -> UUID:
        chosen = {
            "id": new_id(),
            "class": "standard",
            "origin": "channel",
            "first_seq": 1,
            "last_seq": 2,
            "trace_id": "t1",
        }
        chosen |= {"requester": self._contact(conversation), "opened_at": at(1)}
        if state == "completed":
            chosen |= {"result": {"reply": "ok"}}
        if state in ("failed", "needs_human"):
            chosen |= {"error": {"code": "tool_loop", "message": "the model repeats itself"}}
        row = self.put(
            "work_items", conversation_id=conversation, reference=reference, state=state, **(chosen | values)
        )
        return UUID(str(row["id"]))

    def call(self, item: UUID, conversation: UUID, **values: Any) -> None:
        chosen: dict[str, Any] = {
            "attempt_id": new_id(),
            "step": 1,
            "try": 1,
            "assistant": "atendimento",
            "prompt": "p",
            "prompt_version": "v1",
            "prompt_sha256": "0",
            "model": "openai/gpt-4o-mini",
            "purpose": "turn",
            "outcome": "ok",
            "latency_ms": 800,
            "at": at(5),
            "input_tokens": 100,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "output_tokens": 10,
        }
        self.put("model_calls", item_id=item, conversation_id=conversation, **(chosen | values))

    def reply(self, conversation: UUID, *states: str, kind: str = "answer", **values: Any) -> UUID:
        chosen: dict[str, Any] = {
            "id": new_id(),
            "author": "agent",
            "text": "Olá",
            "read_until": 2,
            "created_at": at(20),
        }
        row = self.put("replies", conversation_id=conversation, kind=kind, **(chosen | values))
        for n, state in enumerate(states, start=1):
            sent = f"wamid.out-{row['id']}-{n}" if state in ("accepted", "sent", "delivered", "read") else None
            self.put(
                "parts",
                reply_id=row["id"],
                n=n,
                conversation_id=conversation,
                text="Olá",
                state=state,
                provider_message_id=sent,
            )
        return UUID(str(row["id"]))

    def event(self, conversation: UUID, entity: str, move: tuple[str | None, str], when: float, **values: Any) -> None:
        chosen: dict[str, Any] = {"entity_id": "x", "actor": "worker", "by": "w1"} | values
        moved = {"from_state": move[0], "to_state": move[1], "at": at(when)}
        self.put("events", conversation_id=conversation, entity=entity, **moved, **chosen)

    def _contact(self, conversation: UUID) -> Any:
        found = self.connection.execute("SELECT contact_id FROM conversations WHERE id = %s", [conversation]).fetchone()
        assert found is not None
        return found["contact_id"]


@pytest.fixture
def rows(dsn: str) -> Iterator[Rows]:
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        made = Rows(connection)
        made.company()
        yield made


@pytest.fixture
def story(rows: Rows) -> UUID:
    """Two messages, an acknowledgement, a failed and a good attempt, a tool, two parts, a late status, a handoff."""
    conversation = rows.conversation(aliases=(f"phone:{PHONE}",))
    item = rows.item(
        conversation,
        "ZA-AAAA2222",
        "completed",
        source_message="wamid.in-2",
        class_rule="avaria (operacoes)",
        read_until=2,
    )
    rows.put("item_aliases", reference="ZA-BBBB3333", item_id=item)
    for seq in (1, 2):
        rows.put(
            "messages",
            id=new_id(),
            conversation_id=conversation,
            seq=seq,
            role="customer",
            text=f"mensagem {seq}",
            provider_id=f"wamid.in-{seq}",
            created_at=at(seq),
            sent_at=at(seq),
        )
        rows.put(
            "receipts",
            channel="whatsapp",
            account="100",
            kind="message",
            provider_id=f"wamid.in-{seq}",
            repeats=seq,
        )
    first, second = new_id(), new_id()
    error = {"code": "model_timeout", "message": "no answer in 20 s"}
    ended = {"started_at": at(3), "ended_at": at(6)}
    rows.put("attempts", id=first, item_id=item, n=1, worker="w1", state="failed", error=error, **ended)
    ended = {"started_at": at(10), "ended_at": at(16)}
    rows.put("attempts", id=second, item_id=item, n=2, worker="w2", state="succeeded", **ended)
    asked = {"tool_calls": [{"id": "c1", "name": "refund", "arguments": {"pedido": 7}}]}
    step = {"item_id": item, "attempt_id": second, "model": "openai/gpt-4o-mini", "read_until": 2, "latency_ms": 812}
    rows.put("steps", n=1, answer=asked, created_at=at(12), **step)
    rows.put("steps", n=2, answer={"text": "Olá"}, created_at=at(15), **step)
    tool = {"call_id": "c1", "name": "refund", "arguments": {"pedido": 7}, "result": "feito", "side_effect": True}
    rows.put("tool_executions", item_id=item, step=1, ordinal=1, state="succeeded", started_at=at(13), **tool)
    failed = {"outcome": "timeout", "error": "no answer in 20 s", "cost_usd": None, "input_tokens": None}
    rows.call(item, conversation, attempt_id=first, at=at(5), **failed)
    rows.call(item, conversation, attempt_id=second, at=at(12), cost_usd=Decimal("0.000123"), cache_read_tokens=60)
    rows.call(item, conversation, attempt_id=second, step=2, at=at(15), cost_usd=Decimal("0.000200"))
    rows.reply(conversation, "read", kind="acknowledgement", item_id=item, text="Recebido", created_at=at(2.5))
    answer = rows.reply(conversation, "read", "delivered", item_id=item, source_message="wamid.in-2", created_at=at(16))
    for part in (1, 2):
        provider_id = f"wamid.out-{answer}-{part}"
        rows.put(
            "deliveries",
            reply_id=answer,
            part=part,
            n=1,
            opaque_id=f"z1:{answer.hex}:{part}:1",
            worker="w2",
            outcome="accepted",
            provider_message_id=provider_id,
            started_at=at(17),
            ended_at=at(18),
        )
    for status, when, received in (("sent", 19, 19), ("read", 25, 25), ("delivered", 22, 30)):
        rows.put(
            "statuses",
            channel="whatsapp",
            account="100",
            provider_message_id=f"wamid.out-{answer}-1",
            status=status,
            at=at(when),
            received_at=at(received),
            applied_at=at(received),
        )
    rows.put(
        "handoffs",
        id=new_id(),
        conversation_id=conversation,
        item_id=item,
        assignee="plantao",
        reason="customer asked",
        note="quer falar com gente",
        state="resolved",
        created_at=at(40),
        resolved_at=at(60),
        resolved_by="ana",
    )
    rows.event(conversation, "conversation", ("agent", "human"), 45, actor="person", by="ana", why="took over")
    rows.event(conversation, "item", ("pending", "processing"), 3, item_id=item, why="claimed with a lease")
    rows.event(conversation, "item", ("processing", "completed"), 16, item_id=item, why="turn committed")
    rows.put("alerts", id=new_id(), kind="urgent", dedupe_key=str(item), message="urgente", recipient="supervisor")
    return conversation


async def test_the_story_has_the_shape_of_the_contract(db: Database, story: UUID) -> None:
    told = await conversation_story(db, "loja", story)
    assert json.loads(json.dumps(told)) == told
    assert told["schema_version"] == 1
    assert (
        told["conversation"].items()
        >= {
            "id": str(story),
            "channel": "whatsapp",
            "address": PHONE,
            "owner": "agent",
        }.items()
    )
    assert (
        told["messages"][0].items()
        >= {
            "seq": 1,
            "role": "customer",
            "text": "mensagem 1",
            "at": at(1).isoformat(),
            "provider_id": "wamid.in-1",
        }.items()
    )
    (item,) = told["items"]
    assert (
        item.items()
        >= {
            "reference": "ZA-AAAA2222",
            "thread": "",
            "state": "completed",
            "recovery_state": "completed",
            "class": "standard",
            "class_rule": "avaria (operacoes)",
            "aliases": ["ZA-BBBB3333"],
        }.items()
    )
    assert [(each["n"], each["state"], (each["error"] or {}).get("code")) for each in item["attempts"]] == [
        (1, "failed", "model_timeout"),
        (2, "succeeded", None),
    ]
    assert item["attempts"][0]["steps"] == []
    first, second = item["attempts"][1]["steps"]
    assert first["tool_calls"][0].items() >= {"name": "refund", "args": {"pedido": 7}, "result": "feito"}.items()
    assert len(first["tool_calls"]) == 1
    assert second["tool_calls"] == []
    assert (first["cost_usd"], first["unpriced_calls"]) == ("0.000123", 0)
    assert [(each["attempt"], each["outcome"]) for each in item["model_calls"]] == [
        (1, "timeout"),
        (2, "ok"),
        (2, "ok"),
    ]
    assert second["tokens"] == {"input": 100, "cache_read": 0, "cache_write": 0, "output": 10}
    assert (second["cost_usd"], second["latency_ms"]) == ("0.000200", 812)


async def test_a_story_says_who_answered_what_and_how_it_was_delivered(db: Database, story: UUID) -> None:
    told = await conversation_story(db, "loja", story)
    acknowledgement, answer = told["replies"]
    assert acknowledgement["kind"] == "acknowledgement"
    assert (
        answer.items()
        >= {"source_message": "wamid.in-2", "read_until_seq": 2, "state": "delivered", "text": "Olá"}.items()
    )
    assert answer["provider_message_id"] == f"wamid.out-{answer['id']}-1"
    assert [(each["part"], each["n"], each["outcome"]) for each in answer["deliveries"]] == [
        (1, 1, "accepted"),
        (2, 1, "accepted"),
    ]
    assert answer["deliveries"][0]["opaque_id"].startswith("z1:")
    assert [(each["status"], each["is_late"]) for each in answer["statuses"]] == [
        ("sent", False),
        ("read", False),
        ("delivered", True),
    ]
    assert (
        told["handoffs"][0].items() >= {"assignee": "plantao", "reason": "customer asked", "resolved_by": "ana"}.items()
    )


async def test_events_come_in_time_order_and_name_people(db: Database, story: UUID) -> None:
    told = await conversation_story(db, "loja", story)
    assert [(each["from"], each["to"], each["by"]) for each in told["events"]] == [
        ("pending", "processing", "w1"),
        ("processing", "completed", "w1"),
        ("agent", "human", "ana"),
    ]
    assert told["events"][2]["why"] == "took over"
    assert [each["at"] for each in told["events"]] == sorted(each["at"] for each in told["events"])


async def test_unknown_cost_of_a_step_is_null_and_never_zero(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item, attempt = rows.item(conversation, "ZA-CCCC2222", "processing"), new_id()
    rows.put("attempts", id=attempt, item_id=item, n=1, worker="w1")
    rows.put("steps", item_id=item, n=1, attempt_id=attempt, model="m", read_until=1)
    rows.call(item, conversation, attempt_id=attempt, cost_usd=None)
    told = await conversation_story(db, "loja", conversation)
    (step,) = told["items"][0]["attempts"][0]["steps"]
    assert (step["cost_usd"], step["unpriced_calls"]) == (None, 1)


async def test_a_call_that_was_asked_for_and_never_ran_is_in_the_story(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item, attempt = rows.item(conversation, "ZA-CCCC2222", "processing"), new_id()
    rows.put("attempts", id=attempt, item_id=item, n=1, worker="w1")
    answer = {"tool_calls": [{"id": "c9", "name": "close_conversation", "arguments": {}}]}
    rows.put("steps", item_id=item, n=1, attempt_id=attempt, model="m", read_until=1, answer=answer)
    told = await conversation_story(db, "loja", conversation)
    (call,) = told["items"][0]["attempts"][0]["steps"][0]["tool_calls"]
    assert call == {"name": "close_conversation", "args": {}, "result": None, "state": "not_run"}


async def test_the_timeline_tells_everything_in_order(db: Database, story: UUID) -> None:
    lines = timeline(await conversation_story(db, "loja", story))
    said = "\n".join(f"{line.who}: {line.what}" for line in lines)
    wanted = [
        "customer: #1 mensagem 1",
        "ZA-AAAA2222: opened (standard, rule: avaria (operacoes)), also ZA-BBBB3333",
        "agent: acknowledgement (read): Recebido",
        "ZA-AAAA2222: attempt 1 started by w1",
        "ZA-AAAA2222: model call failed: openai/gpt-4o-mini, timeout: no answer in 20 s",
        "ZA-AAAA2222: attempt 1 failed: model_timeout: no answer in 20 s",
        "ZA-AAAA2222: attempt 2 (retry) started by w2",
        "ZA-AAAA2222: step 1: refund(pedido=7) -> feito",
        "ZA-AAAA2222: attempt 2 succeeded",
        "agent: reply in 2 parts (delivered, read up to #2): Olá",
        "w2: reply part 1, delivery 1: accepted",
        "channel: reply part 1: read",
        "channel: reply part 1: delivered (late, changed nothing)",
        "handoff: to plantao because of customer asked: quer falar com gente",
        "ana: conversation agent -> human: took over",
        "ana: handoff resolved",
    ]
    places = [said.find(line) for line in wanted]
    assert -1 not in places, [line for line, place in zip(wanted, places, strict=True) if place < 0]
    assert places == sorted(places)
    assert [line.at for line in lines] == sorted(line.at for line in lines)


async def test_the_timeline_tells_what_a_customer_wrote_first_and_what_it_became(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    revisions = [{"text": "pedido 7", "at": None}, {"text": "pedido 8", "at": at(9).isoformat()}]
    said = {"role": "customer", "text": "pedido 8", "revisions": revisions, "created_at": at(1), "deleted_at": at(12)}
    rows.put("messages", id=new_id(), conversation_id=conversation, seq=1, **said)
    lines = timeline(await conversation_story(db, "loja", conversation))
    assert [line.what for line in lines] == ["#1 pedido 7", "#1 edited: pedido 8", "#1 deleted"]


@pytest.mark.parametrize(
    "ref",
    ["ZA-AAAA2222", "za-aaaa2222", "ZA-BBBB3333", "wamid.in-1", "wamid.in-2", "whatsapp:5511900010000"],
)
async def test_every_name_of_a_request_leads_to_it(db: Database, story: UUID, ref: str) -> None:
    target = await find(db, ref)
    assert (target.organization, target.conversation_id) == ("loja", story)
    item = await find_item(db, ref)
    assert (await item_evidence(db, item))["item"]["reference"] == "ZA-AAAA2222"


async def test_ids_and_outbound_names_lead_to_the_request(db: Database, story: UUID) -> None:
    told = await conversation_story(db, "loja", story)
    answer = told["replies"][1]
    names = [
        str(story),
        told["items"][0]["id"],
        answer["id"],
        answer["provider_message_id"],
        answer["deliveries"][1]["opaque_id"],
    ]
    targets = [await find(db, name) for name in names]
    assert [target.kind for target in targets] == ["conversation", "item", "reply", "reply", "reply"]
    assert {target.conversation_id for target in targets} == {story}


@pytest.mark.parametrize("written", ["5541998760000", "554198760000", "+55 (41) 99876-0000"])
@pytest.mark.parametrize("stored", ["5541998760000", "554198760000"])
async def test_a_phone_is_found_in_every_form_it_is_written(
    db: Database, rows: Rows, stored: str, written: str
) -> None:
    conversation = rows.conversation(stored, aliases=(f"phone:{stored}",))
    assert (await find(db, f"whatsapp:{written}")).conversation_id == conversation


async def test_an_address_is_found_by_an_alias_of_its_contact(db: Database, rows: Rows) -> None:
    conversation = rows.conversation("BR.900", aliases=("bsuid:BR.900", "phone:5541998760000"))
    assert (await find(db, "whatsapp:5541998760000")).conversation_id == conversation
    assert (await find(db, "whatsapp:BR.900")).conversation_id == conversation


async def test_what_two_companies_share_is_refused_until_one_is_named(db: Database, rows: Rows) -> None:
    other = Rows(rows.connection, "outra")
    other.company()
    mine, theirs = rows.conversation(), other.conversation()
    with pytest.raises(RefusedError) as refused:
        await find(db, f"whatsapp:{PHONE}")
    assert str(mine) in refused.value.message
    assert str(theirs) in refused.value.message
    assert (await find(db, f"whatsapp:{PHONE}", organization="outra")).conversation_id == theirs
    assert (await find(db, f"whatsapp:{PHONE}", organization="loja")).conversation_id == mine
    with pytest.raises(NotFoundError):
        await find(db, str(mine), organization="outra")


async def test_a_contact_with_two_threads_is_listed_not_guessed(db: Database, rows: Rows) -> None:
    rows.conversation(thread="troca")
    rows.conversation(thread="boleto")
    with pytest.raises(RefusedError, match=r"(?s)troca.*boleto"):
        await find(db, f"whatsapp:{PHONE}")


async def test_a_conversation_with_two_items_is_not_one_item(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    rows.item(conversation, "ZA-CCCC2222", "completed")
    rows.item(conversation, "ZA-DDDD2222")
    with pytest.raises(RefusedError, match=r"ZA-CCCC2222 \(completed\), ZA-DDDD2222 \(pending\)"):
        await find_item(db, str(conversation))


async def test_an_absorbed_reference_leads_to_the_item_that_goes_on(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    rows.item(conversation, "ZA-CCCC2222", "cancelled")
    going_on = rows.item(conversation, "ZA-DDDD2222")
    rows.put("item_aliases", reference="ZA-CCCC2222", item_id=going_on)
    assert (await find(db, "ZA-CCCC2222")).item_id == going_on


@pytest.mark.parametrize(
    "ref",
    [
        "ZA-ZZZZ9999",
        "wamid.none",
        "whatsapp:5500",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "fax:1",
        "",
        "01890a5d-ac96-774b-bcce",
    ],
)
async def test_what_is_not_there_is_not_found_with_a_hint(db: Database, story: UUID, ref: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        await find(db, ref)
    assert missing.value.exit_code == 4
    assert missing.value.hint


async def test_a_trace_holds_its_own_request_alone(db: Database, rows: Rows, story: UUID) -> None:
    later = rows.item(story, "ZA-EEEE2222", "processing", first_seq=3, last_seq=3, opened_at=at(100))
    rows.event(story, "item", ("pending", "processing"), 101, item_id=later)
    rows.call(later, story, cost_usd=Decimal(7))
    traced = await request_trace(db, await find(db, "ZA-BBBB3333"))
    assert json.loads(json.dumps(traced)) == traced
    assert [item["reference"] for item in traced["items"]] == ["ZA-AAAA2222"]
    assert [message["seq"] for message in traced["messages"]] == [1, 2]
    assert [event["to"] for event in traced["events"]] == ["processing", "completed"]
    assert [reply["kind"] for reply in traced["replies"]] == ["acknowledgement", "answer"]
    assert [receipt["repeats"] for receipt in traced["receipts"]] == [1, 2]
    assert [alert["kind"] for alert in traced["alerts"]] == ["urgent"]
    assert [call["attempt"] for call in traced["items"][0]["model_calls"]] == [1, 2, 2]
    assert traced["cost"] == {"cost_usd": "0.000323", "calls": 3, "unpriced_calls": 1, "failed_calls": 1}
    whole = await request_trace(db, await find(db, str(story)))
    assert [item["reference"] for item in whole["items"]] == ["ZA-AAAA2222", "ZA-EEEE2222"]
    assert len(whole["events"]) == 4


async def test_evidence_of_a_completed_item_names_what_was_done(db: Database, story: UUID) -> None:
    shown = await item_evidence(db, await find_item(db, "ZA-AAAA2222"))
    evidence = shown["evidence"]
    assert evidence["is_delivered"] is True
    assert len(evidence["provider_message_ids"]) == 3
    (effect,) = evidence["side_effects"]
    assert (effect["name"], effect["state"], effect["result"]) == ("refund", "succeeded", "feito")
    assert evidence["error"] is None


async def test_evidence_of_a_failed_item_is_its_error(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222", "needs_human")
    rows.reply(conversation, "pending", item_id=item)
    shown = await item_evidence(db, await find_item(db, "ZA-CCCC2222"))
    assert shown["evidence"]["error"]["code"] == "tool_loop"
    assert shown["evidence"]["is_delivered"] is False
    assert shown["item"]["recovery_state"] == "failed"


@pytest.mark.parametrize(
    ("parts", "state"),
    [
        (["read", "failed", "unknown", "cancelled"], "failed"),
        (["read", "unknown", "cancelled"], "unknown"),
        (["read", "cancelled", "pending"], "cancelled"),
        (["read", "pending", "sending"], "pending"),
        (["delivered", "sending"], "sending"),
        (["accepted", "sent"], "accepted"),
        (["sent", "delivered", "read"], "sent"),
        (["read", "delivered"], "delivered"),
        (["read", "read"], "read"),
        ([], "pending"),
    ],
)
def test_a_reply_is_as_bad_or_as_far_as_its_worst_part(parts: list[str], state: str) -> None:
    assert reply_state(parts) == state
    assert reply_state(reversed(parts)) == state


async def test_stats_count_every_item_and_every_reply_once(db: Database, rows: Rows) -> None:
    for n, state in enumerate((*ITEM_STATES, "completed", "completed"), start=2):
        rows.item(rows.conversation(f"551190001000{n}"), f"ZA-AAAA222{n}", state, opened_at=datetime.now(UTC))
    conversation = rows.conversation()
    parts = [("read", "failed"), ("unknown", "read"), ("delivered", "read"), ("read",), ("pending", "read"), ()]
    for states in parts:
        rows.reply(conversation, *states, kind="human")
    stats = await queue_stats(db)
    assert {state: stats[state] for state in ITEM_STATES} == dict.fromkeys(ITEM_STATES, 1) | {"completed": 3}
    assert sum(stats[state] for state in ITEM_STATES) == len(ITEM_STATES) + 2
    assert stats["replies"] == dict.fromkeys(PART_STATES, 0) | {
        "failed": 1,
        "unknown": 1,
        "delivered": 1,
        "read": 1,
        "pending": 2,
    }
    assert sum(stats["replies"].values()) == len(parts)


async def test_stats_of_an_empty_queue_have_every_key(db: Database) -> None:
    assert await queue_stats(db) == {
        "schema_version": 1,
        "pending": 0,
        "processing": 0,
        "completed": 0,
        "failed": 0,
        "needs_human": 0,
        "waiting_approval": 0,
        "cancelled": 0,
        "oldest_pending_s": {"urgent": None, "standard": None, "background": None},
        "overdue": 0,
        "expired_leases_24h": 0,
        "duplicate_inputs": 0,
        "rejected_inputs": 0,
        "human_open": 0,
        "replies": dict.fromkeys(PART_STATES, 0),
    }


async def test_stats_tell_what_waits_and_what_went_wrong(db: Database, rows: Rows) -> None:
    now = datetime.now(UTC)
    conversation = rows.conversation()
    item = rows.item(
        conversation, "ZA-CCCC2222", opened_at=now - timedelta(seconds=90), overdue_at=now, **{"class": "urgent"}
    )
    rows.item(rows.conversation("1"), "ZA-DDDD2222", "processing", deadline_at=now - timedelta(seconds=5))
    rows.item(rows.conversation("2"), "ZA-EEEE2222", "completed", deadline_at=now - timedelta(seconds=5))
    expired = {"item_id": item, "worker": "w1", "state": "failed", "error": {"code": "lease_expired"}}
    rows.put("attempts", id=new_id(), n=1, ended_at=now - timedelta(hours=1), **expired)
    rows.put("attempts", id=new_id(), n=2, ended_at=now - timedelta(hours=25), **expired)
    for n, repeats in enumerate((0, 2, 3)):
        receipt = {"channel": "whatsapp", "account": "100", "kind": "message", "provider_id": str(n)}
        rows.put("receipts", repeats=repeats, **receipt)
    rows.put("rejected_inputs", channel="whatsapp", path="entry[0]", reason="no id", raw={"x": 1})
    rows.put("rejected_inputs", channel="whatsapp", path="entry[1]", reason="no id", organization_id=None)
    rows.put("handoffs", id=new_id(), conversation_id=conversation, assignee="plantao", reason="asked")
    stats = await queue_stats(db)
    assert 89 < stats["oldest_pending_s"]["urgent"] < 150
    assert stats["oldest_pending_s"]["standard"] is None
    assert stats["overdue"] == 2
    assert stats["expired_leases_24h"] == 1
    assert stats["duplicate_inputs"] == 5
    assert stats["rejected_inputs"] == 2
    assert stats["human_open"] == 1
    assert [row["path"] for row in await rejected_inputs(db)] == ["entry[1]", "entry[0]"]
    assert [row["raw"] for row in await rejected_inputs(db, organization="loja")] == [{"x": 1}]
    other = await queue_stats(db, organization="outra")
    assert (other["pending"], other["overdue"], other["duplicate_inputs"], other["rejected_inputs"]) == (0, 0, 0, 0)


async def test_the_queue_lists_the_most_urgent_and_oldest_first(db: Database, rows: Rows) -> None:
    chosen = [
        ("ZA-AAAA2222", "completed", "urgent", 1),
        ("ZA-BBBB2222", "pending", "background", 2),
        ("ZA-CCCC2222", "pending", "standard", 4),
        ("ZA-DDDD2222", "processing", "standard", 3),
        ("ZA-EEEE2222", "needs_human", "urgent", 5),
    ]
    for n, (reference, state, item_class, opened) in enumerate(chosen):
        rows.item(rows.conversation(str(n)), reference, state, opened_at=at(opened), **{"class": item_class})
    listed = [item["reference"] for item in await queue_items(db)]
    assert listed == ["ZA-EEEE2222", "ZA-DDDD2222", "ZA-CCCC2222", "ZA-BBBB2222", "ZA-AAAA2222"]
    assert [item["reference"] for item in await queue_items(db, state="pending", item_class="standard")] == [
        "ZA-CCCC2222"
    ]
    assert [item["reference"] for item in await queue_items(db, limit=1)] == ["ZA-EEEE2222"]
    assert await queue_items(db, organization="outra") == []
    with pytest.raises(ConfigError, match="pendng"):
        await queue_items(db, state="pendng")


async def test_cost_days_begin_at_the_organizations_own_midnight(db: Database, rows: Rows) -> None:
    path = SHARED / "cases" / "channels" / "079_cost_day_buckets_timezone.json"
    if not path.is_file():
        pytest.skip("shared cases are not here")
    case = json.loads(path.read_text(encoding="utf-8"))
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222")
    for row in case["input"]["rows"]:
        rows.call(item, conversation, at=datetime.fromisoformat(row["at"]), cost_usd=Decimal(row["cost"]))
    report = await cost_report(db, by=["day"])
    assert report["timezone"] == case["input"]["report_timezone"]
    assert {row["day"]: row["cost_usd"] for row in report["rows"]} == case["expected"]["days"]
    assert (report["since"], report["until"]) == ("2026-10-05", "2026-10-07")
    cut = await cost_report(db, by=["day"], since=date(2026, 10, 6), until=date(2026, 10, 6))
    assert {row["day"]: row["cost_usd"] for row in cut["rows"]} == {"2026-10-06": "6.00"}
    for whole in (report, cut):
        assert sum(Decimal(row["cost_usd"]) for row in whole["rows"]) == Decimal(whole["total"]["cost_usd"])
    utc = await cost_report(db, by=["day"], timezone="UTC")
    assert {row["day"]: row["cost_usd"] for row in utc["rows"]} == {"2026-10-06": "3.00", "2026-10-07": "12.00"}


async def test_each_organization_has_its_own_days(db: Database, rows: Rows) -> None:
    other = Rows(rows.connection, "outra")
    other.company("Asia/Tokyo")
    for each in (rows, other):
        conversation = each.conversation()
        each.call(each.item(conversation, "ZA-CCCC2222"), conversation, at=datetime(2026, 10, 6, 1, tzinfo=UTC))
    report = await cost_report(db, by=["organization", "day"])
    assert {row["organization"]: row["day"] for row in report["rows"]} == {"loja": "2026-10-05", "outra": "2026-10-06"}
    assert report["timezone"] == "each organization's own"
    only = await cost_report(db, by=["organization"], organization="outra")
    assert [row["organization"] for row in only["rows"]] == ["outra"]
    assert (only["timezone"], only["total"]["calls"]) == ("Asia/Tokyo", 1)


async def test_unknown_cost_is_counted_and_never_zero(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222")
    for _ in range(10):
        rows.call(item, conversation, cost_usd=Decimal("0.1"), model="known")
    rows.call(item, conversation, cost_usd=None, model="known")
    rows.call(
        item, conversation, cost_usd=None, model="unknown", outcome="rate_limit", input_tokens=None, output_tokens=None
    )
    report = await cost_report(db, by=["model"])
    known, unknown = report["rows"]
    assert (known["cost_usd"], known["unpriced_calls"], known["calls"]) == ("1.0", 1, 11)
    assert (unknown["cost_usd"], unknown["unpriced_calls"], unknown["failed_calls"]) == (None, 1, 1)
    assert unknown["unmetered_calls"] == 1
    assert report["total"].items() >= {"calls": 12, "cost_usd": "1.0", "unpriced_calls": 2, "failed_calls": 1}.items()


async def test_the_cache_ratio_is_over_what_was_read(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222")
    rows.call(item, conversation, input_tokens=20, cache_read_tokens=62, cache_write_tokens=18, output_tokens=900)
    nothing = {"input_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "purpose": "empty"}
    rows.call(item, conversation, **nothing)
    ratios = {row["purpose"]: row["cache_hit_ratio"] for row in (await cost_report(db, by=["purpose"]))["rows"]}
    assert ratios == {"turn": 0.62, "empty": None}


async def test_every_combination_of_columns_adds_up_to_the_same_total(db: Database, rows: Rows, story: UUID) -> None:
    totals = [(await cost_report(db, by=[name]))["total"] for name in DIMENSIONS]
    assert all(total == totals[0] for total in totals)
    report = await cost_report(db, by=DIMENSIONS)
    assert list(report["rows"][0])[: len(DIMENSIONS)] == list(DIMENSIONS)
    assert {row["conversation"] for row in report["rows"]} == {str(story)}
    for name in ("calls", "input_tokens", "output_tokens", "unpriced_calls", "failed_calls"):
        assert sum(row[name] for row in report["rows"]) == report["total"][name]


async def test_top_keeps_the_dearest_and_the_whole_total(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222")
    for model, cost in (("a", "1"), ("b", "3"), ("c", "2"), ("d", None)):
        rows.call(item, conversation, model=model, cost_usd=None if cost is None else Decimal(cost))
    report = await cost_report(db, by=["model"], top=2)
    assert [row["model"] for row in report["rows"]] == ["b", "c"]
    assert (report["omitted_rows"], report["total"]["cost_usd"]) == (2, "6")


async def test_a_report_over_nothing_is_empty_not_zero(db: Database, rows: Rows) -> None:
    report = await cost_report(db, by=["day"])
    assert (report["rows"], report["since"], report["timezone"], report["omitted_rows"]) == ([], None, None, 0)
    assert report["total"].items() >= {"calls": 0, "cost_usd": None, "cache_hit_ratio": None}.items()


@pytest.mark.parametrize(
    "wrong",
    [
        {"by": ["colour"]},
        {"by": []},
        {"timezone": "Mars/Olympus"},
        {"since": date(2026, 10, 7), "until": date(2026, 10, 6)},
    ],
)
async def test_a_cost_report_that_makes_no_sense_is_refused(db: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await cost_report(db, **wrong)


async def test_health_of_an_idle_engine_has_no_problems(db: Database, rows: Rows) -> None:
    found = await health(db)
    assert found["problems"] == []
    assert found["workers"]["alive"] == 0
    assert found["last_24h"]["cost_usd"] is None


async def test_health_names_everything_that_needs_a_person(db: Database, rows: Rows) -> None:
    now = datetime.now(UTC)
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222", opened_at=now - timedelta(seconds=60))
    rows.item(conversation, "ZA-DDDD2222", "completed", completed_at=now)
    expired = {"token": new_id(), "lease_until": now - timedelta(seconds=1)}
    rows.conversation("2", hot=expired)
    rows.reply(conversation, "unknown", "unknown", kind="human")
    rows.put("handoffs", id=new_id(), conversation_id=conversation, assignee="plantao", reason="asked")
    rows.put("gates", name="model:openai", reason="429", closed_until=now + timedelta(hours=1))
    rows.put("gates", name="model:other", reason="429", closed_until=now - timedelta(hours=1))
    rows.put("alerts", id=new_id(), kind="urgent", dedupe_key="1", message="x", state="failed")
    rows.put("workers", id="gone", seen_at=now - timedelta(minutes=5))
    rows.call(item, conversation, at=now, cost_usd=Decimal("0.5"))
    rows.call(item, conversation, at=now, cost_usd=None)
    found = await health(db, organization="loja")
    assert json.loads(json.dumps(found)) == found
    for word in ("no worker is alive", "leases", "unknown outcome", "human lane", "alerts", "model:openai"):
        assert any(word in problem for problem in found["problems"]), word
    assert len(found["problems"]) == 6
    assert found["waiting"]["replies_unknown"] == 1
    assert [gate["name"] for gate in found["gates"]] == ["model:openai"]
    assert (found["workers"]["alive"], found["workers"]["silent"]) == (0, 1)
    assert found["queue"][0].items() >= {"state": "pending", "class": "standard", "items": 1}.items()
    assert (
        found["last_24h"].items()
        >= {"cost_usd": "0.5", "model_calls": 2, "unpriced_calls": 1, "items_completed": 1}.items()
    )
    rows.put("workers", id="alive", seen_at=now, in_flight=3)
    alive = await health(db, organization="outra")
    assert alive["problems"] == []
    assert alive["workers"]["in_flight"] == 3


async def test_the_human_lane_is_listed_longest_waiting_first(db: Database, rows: Rows) -> None:
    names = ("a", "b", "c")
    for n, name in enumerate(names):
        conversation = rows.conversation(str(n))
        values = {"state": "resolved", "resolved_by": "ana", "resolved_at": at(99)} if name == "b" else {}
        row = {"id": new_id(), "assignee": name, "reason": "asked", "created_at": at(-n)}
        rows.put("handoffs", conversation_id=conversation, **row, **values)
    assert [row["assignee"] for row in await handoffs(db)] == ["c", "a"]
    assert [row["assignee"] for row in await handoffs(db, state=None)] == ["c", "a", "b"]
    assert [row["assignee"] for row in await handoffs(db, assignee="a")] == ["a"]
    assert await handoffs(db, organization="outra") == []


async def test_approvals_wait_until_they_are_decided(db: Database, rows: Rows) -> None:
    conversation = rows.conversation()
    item = rows.item(conversation, "ZA-CCCC2222", "waiting_approval")
    rows.put("steps", item_id=item, n=1, attempt_id=new_id(), model="m", read_until=1)
    for ordinal, state in ((1, "waiting"), (2, "approved")):
        key = {"item_id": item, "step": 1, "ordinal": ordinal}
        rows.put("tool_executions", call_id="c", name="refund", state="waiting_approval", **key)
        chosen = {"tool": "refund", "state": state, "assignee": "gerente", "arguments": {"valor": "10"}}
        rows.put("approvals", id=new_id(), conversation_id=conversation, **key, **chosen)
    (waiting,) = await approvals(db)
    assert (waiting["reference"], waiting["tool"], waiting["arguments"]) == ("ZA-CCCC2222", "refund", {"valor": "10"})
    assert [row["state"] for row in await approvals(db, state=None)] == ["waiting", "approved"]
    assert (await approval(db, UUID(waiting["id"])))["assignee"] == "gerente"
    with pytest.raises(NotFoundError):
        await approval(db, UUID(waiting["id"]), organization="outra")
