"""Commands over what happened: output, JSON shape, exit codes, and who may act."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from zaia_cli.core.ids import new_id

Zaia = Callable[..., Any]
START = datetime(2026, 10, 6, 12, 0, tzinfo=UTC)
REF = "ZA-AAAA2222"
KEYS = {
    "conversation": {"id", "channel", "address", "owner"},
    "messages": {"seq", "role", "text", "at", "provider_id"},
    "items": {"reference", "thread", "state", "recovery_state", "class", "class_rule", "attempts"},
    "attempts": {"n", "state", "error", "steps"},
    "steps": {"n", "model", "tool_calls", "tokens", "cost_usd", "latency_ms"},
    "tokens": {"input", "cache_read", "cache_write", "output"},
    "tool_calls": {"name", "args", "result"},
    "replies": {"id", "source_message", "read_until_seq", "state", "text", "provider_message_id", "deliveries"},
    "deliveries": {"n", "opaque_id", "outcome"},
    "events": {"at", "entity", "from", "to", "by", "why"},
}


class Rows:
    """Writes rows of company ``loja`` directly."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.conversation, self.contact, self.item, self.reply = (new_id() for _ in range(4))

    def put(self, table: str, **values: Any) -> None:
        if table != "organizations":
            values["organization_id"] = "loja"
        bound = [Jsonb(value) if isinstance(value, dict) else value for value in values.values()]
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        )
        self.connection.execute(query, bound)

    def value(self, query: str) -> Any:
        row = self.connection.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0]

    def company(self) -> None:
        settings = {"handoff_message": "Um instante", "human_assignee": "plantao"}
        self.put("organizations", id="loja", name="Loja", timezone="America/Sao_Paulo", settings=settings)
        self.put("assistants", slug="atendimento", prompt="p", prompt_version="v1", model="scripted/demo")
        self.put("channel_accounts", channel="whatsapp", account="100", assistant="atendimento")
        self.put("contacts", id=self.contact, address="5511900010000", name="Cliente")
        place = {"channel": "whatsapp", "account": "100", "address": "5511900010000", "assistant": "atendimento"}
        self.put("conversations", id=self.conversation, contact_id=self.contact, **place)

    def work(self, state: str = "completed", owner: str = "agent") -> None:
        self.put("hot", conversation_id=self.conversation, seq=1, last_in=1, owner=owner, owner_name="plantao")
        said = {
            "role": "customer",
            "text": "Oi\tvocê",
            "provider_id": "wamid.in",
            "created_at": START,
            "sent_at": START,
        }
        self.put("messages", id=new_id(), conversation_id=self.conversation, seq=1, **said)
        item = {"class": "standard", "origin": "channel", "requester": self.contact, "first_seq": 1, "last_seq": 1}
        ended = (
            {"result": {"text": "Olá"}}
            if state == "completed"
            else {"error": {"code": "tool_loop", "message": "again"}}
        )
        item |= {"reference": REF, "trace_id": "t", "opened_at": START, "source_message": "wamid.in"} | ended
        self.put("work_items", id=self.item, conversation_id=self.conversation, state=state, **item)
        attempt = {"id": new_id(), "n": 1, "worker": "w1", "state": "succeeded", "started_at": START, "ended_at": START}
        self.put("attempts", item_id=self.item, **attempt)
        step = {"attempt_id": attempt["id"], "model": "m", "read_until": 1, "created_at": START}
        self.put("steps", item_id=self.item, n=1, **step)
        tool = {"call_id": "c", "name": "refund", "arguments": {"valor": "10"}, "state": "waiting_approval"}
        self.put("tool_executions", item_id=self.item, step=1, ordinal=1, **tool)
        call = {"assistant": "atendimento", "prompt": "p", "prompt_version": "v1", "prompt_sha256": "0", "model": "m"}
        call |= {
            "purpose": "turn",
            "outcome": "ok",
            "latency_ms": 8,
            "input_tokens": 5,
            "at": START,
            "cost_usd": "0.00010",
        }
        place = {"item_id": self.item, "conversation_id": self.conversation, "attempt_id": attempt["id"], "step": 1}
        self.put("model_calls", **place, **call, **{"try": 1})
        self.put("events", conversation_id=self.conversation, entity="item", entity_id="x", to_state="pending", **WHO)

    def answer(self, state: str = "delivered") -> None:
        reply = {"kind": "answer", "author": "agent", "text": "Olá", "read_until": 1, "created_at": START}
        self.put("replies", id=self.reply, conversation_id=self.conversation, item_id=self.item, **reply)
        part = {"n": 1, "text": "Olá", "state": state, "unknown_at": START if state == "unknown" else None}
        self.put(
            "parts", reply_id=self.reply, conversation_id=self.conversation, provider_message_id="wamid.out", **part
        )
        delivery = {"part": 1, "n": 1, "opaque_id": "z1:1", "worker": "w1", "outcome": "accepted", "started_at": START}
        self.put("deliveries", reply_id=self.reply, **delivery)


WHO = {"actor": "channel", "by": "whatsapp:100", "why": "message", "at": START}


@pytest.fixture
def rows(dsn: str) -> Iterator[Rows]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        made = Rows(connection)
        made.company()
        yield made


@pytest.fixture
def on(zaia: Zaia, workspace: Any, dsn: str) -> Zaia:
    return lambda *arguments, **more: zaia(*arguments, "--workspace", workspace, "--database-url", dsn, **more)


def answered(result: Any) -> Any:
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    return document


def test_replay_has_the_keys_of_the_contract(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer()
    told = answered(on("replay", "whatsapp:5511900010000", "--json"))
    attempt = told["items"][0]["attempts"][0]
    found = {
        **{name: told[name] for name in ("conversation", "messages", "items", "replies", "events")},
        "attempts": told["items"][0]["attempts"],
        "steps": attempt["steps"],
        "tokens": attempt["steps"][0]["tokens"],
        "tool_calls": attempt["steps"][0]["tool_calls"],
        "deliveries": told["replies"][0]["deliveries"],
    }
    for name, keys in KEYS.items():
        first = found[name][0] if isinstance(found[name], list) else found[name]
        assert keys <= set(first), name
    assert told["handoffs"] == []


def test_replay_reads_as_a_timeline(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer()
    shown = on("replay", REF)
    assert shown.exit_code == 0, shown.output
    title, heading, *lines = shown.stdout.splitlines()
    assert title.startswith("whatsapp:5511900010000 open, owner agent")
    assert heading.split("\t") == ["at", "who", "what"]
    assert all(len(line.split("\t")) == 3 for line in lines)
    assert lines[0] == "2026-10-06 12:00:00\tcustomer\t#1 Oi você"
    assert any(line.endswith("agent\treply (delivered, read up to #1): Olá") for line in lines)


@pytest.mark.parametrize("mode", ["recorded", "prompt", "live"])
def test_replay_modes_of_the_evaluation_are_not_faked(on: Zaia, rows: Rows, mode: str) -> None:
    refused = on("replay", REF, "--mode", mode, "--json")
    assert refused.exit_code == 2
    assert "comes with the evaluation" in json.loads(refused.stdout)["error"]["message"]


@pytest.mark.parametrize("command", [("replay",), ("trace",), ("queue", "show"), ("human", "show")])
def test_what_is_not_there_exits_4(on: Zaia, rows: Rows, command: tuple[str, ...]) -> None:
    missing = on(*command, "ZA-ZZZZ9999", "--json")
    assert missing.exit_code == 4
    assert json.loads(missing.stdout)["error"].keys() == {"kind", "message", "hint"}


def test_trace_tells_the_cost_and_every_call(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer()
    traced = answered(on("trace", "wamid.out", "--json"))
    assert traced["items"][0]["reference"] == REF
    assert traced["cost"]["cost_usd"] == "0.00010"
    shown = on("trace", REF).stdout
    assert f"{REF}: completed, standard, trace t" in shown
    assert "cost: USD 0.00010 in 1 model calls, 0 of unknown cost, 0 failed" in shown


def test_queue_stats_has_the_keys_of_the_contract(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer()
    stats = answered(on("queue", "stats", "--json"))
    states = ["pending", "processing", "completed", "failed", "needs_human", "waiting_approval", "cancelled"]
    rest = ["oldest_pending_s", "overdue", "expired_leases_24h", "duplicate_inputs", "rejected_inputs", "human_open"]
    assert list(stats) == ["schema_version", *states, *rest, "replies"]
    assert (stats["completed"], stats["replies"]["delivered"]) == (1, 1)
    assert "completed\t1" in on("queue", "stats").stdout.splitlines()


def test_queue_list_and_show_name_the_item(on: Zaia, rows: Rows) -> None:
    rows.work("needs_human", owner="human")
    (item,) = answered(on("queue", "list", "--state", "needs_human", "--class", "standard", "--json"))["items"]
    assert item["reference"] == REF
    line = on("queue", "list").stdout.splitlines()[1].split("\t")
    assert line[:5] == [REF, "loja", "needs_human", "standard", "0"]
    assert line[-1] == "tool_loop: again"
    assert answered(on("queue", "show", REF, "--json"))["evidence"]["error"]["code"] == "tool_loop"
    assert "error\ttool_loop: again" in on("queue", "show", REF).stdout
    assert on("queue", "list", "--state", "pendng").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "list"),
        ("queue", "stats"),
        ("queue", "rejected"),
        ("cost-report",),
        ("status",),
        ("human", "list"),
        ("approvals", "list"),
    ],
)
def test_a_misspelt_organization_is_not_an_empty_one(on: Zaia, rows: Rows, command: tuple[str, ...]) -> None:
    assert on(*command, "--org", "loja").exit_code == 0
    assert on(*command, "--org", "loka").exit_code == 4


def test_queue_rejected_lists_what_could_not_be_read(on: Zaia, rows: Rows) -> None:
    rows.put("rejected_inputs", channel="whatsapp", path="entry[0]", reason="no id", raw={"a": 1})
    assert answered(on("queue", "rejected", "--json"))["rejected"][0]["raw"] == {"a": 1}
    assert "entry[0]\tno id" in on("queue", "rejected").stdout


def test_cost_report_writes_the_same_numbers_in_every_format(on: Zaia, rows: Rows) -> None:
    rows.work()
    report = answered(on("cost-report", "--by", "organization,prompt_version", "--json"))
    assert answered(on("cost-report", "--by", "organization,prompt_version", "--format", "json")) == report
    assert (report["currency"], report["timezone"]) == ("USD", "America/Sao_Paulo")
    (row,) = report["rows"]
    assert (row["organization"], row["prompt_version"], row["calls"], row["cost_usd"]) == ("loja", "v1", 1, "0.00010")
    text = on("cost-report", "--by", "organization,prompt_version", "--format", "csv").stdout
    (written,) = csv.DictReader(io.StringIO(text))
    assert written == {name: str(row[name]) for name in written}
    table = on("cost-report", "--by", "organization,prompt_version").stdout.splitlines()
    assert [line.split("\t")[:2] for line in table] == [
        ["organization", "prompt_version"],
        ["loja", "v1"],
        ["total", ""],
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--by", "colour"),
        ("--since", "yesterday"),
        ("--tz", "Mars"),
        ("--since", "2026-10-07", "--until", "2026-10-06"),
    ],
)
def test_a_cost_report_that_makes_no_sense_exits_2(on: Zaia, rows: Rows, wrong: tuple[str, ...]) -> None:
    refused = on("cost-report", *wrong, "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["hint"]


def test_status_tells_health_and_migrations(on: Zaia, rows: Rows) -> None:
    rows.work("pending")
    found = answered(on("status", "--json"))
    assert found["migrations"]["state"] == "current"
    assert any("no worker is alive" in problem for problem in found["problems"])
    shown = on("status").stdout
    assert "queue pending standard\t1, oldest" in shown
    assert "migrations\tcurrent" in shown


def test_human_list_and_show_tell_why(on: Zaia, rows: Rows) -> None:
    rows.work("needs_human", owner="human")
    handoff = {"id": new_id(), "assignee": "plantao", "reason": "tool_loop", "item_id": rows.item}
    rows.put("handoffs", conversation_id=rows.conversation, **handoff)
    (row,) = answered(on("human", "list", "--json"))["handoffs"]
    assert (row["reference"], row["assignee"], row["unanswered"]) == (REF, "plantao", 1)
    assert answered(on("human", "list", "--assignee", "ana", "--json"))["handoffs"] == []
    shown = answered(on("human", "show", REF, "--json"))
    assert shown["handoffs"][0]["reason"] == "tool_loop"
    assert "to plantao because of tool_loop" in on("human", "show", REF).stdout


@pytest.fixture
def approval(rows: Rows) -> UUID:
    rows.work("waiting_approval")
    made = new_id()
    asked = {"step": 1, "ordinal": 1, "tool": "refund", "assignee": "gerente", "arguments": {"valor": "10"}}
    rows.put("approvals", id=made, conversation_id=rows.conversation, item_id=rows.item, **asked)
    return made


def test_approvals_are_listed_and_decided_by_a_named_person(on: Zaia, rows: Rows, approval: UUID) -> None:
    (row,) = answered(on("approvals", "list", "--json"))["approvals"]
    assert (row["id"], row["tool"], row["reference"]) == (str(approval), "refund", REF)
    assert answered(on("approvals", "show", approval, "--json"))["assignee"] == "gerente"
    answered(on("approvals", "reject", approval, "--as", "ana", "--why", "sem recibo", "--json"))
    assert rows.value("SELECT decided_by || ' ' || state FROM approvals") == "ana rejected"
    assert on("approvals", "approve", approval, "--as", "ana").exit_code == 6
    assert answered(on("approvals", "list", "--json"))["approvals"] == []
    assert len(answered(on("approvals", "list", "--all", "--json"))["approvals"]) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "retry", REF),
        ("queue", "cancel", REF),
        ("queue", "prioritize", REF, "--class", "urgent"),
        ("human", "take", REF),
        ("human", "assign", REF, "rui"),
        ("human", "reply", REF, "oi"),
        ("human", "resolve", REF),
        ("approvals", "approve", str(new_id())),
        ("reconcile", "--resend", f"{new_id()}:1"),
    ],
)
def test_nobody_acts_without_a_name(on: Zaia, rows: Rows, command: tuple[str, ...]) -> None:
    rows.work("needs_human", owner="human")
    refused = on(*command, "--json")
    assert refused.exit_code == 2
    assert "ZAIA_OPERATOR" in json.loads(refused.stdout)["error"]["hint"]
    assert rows.value("SELECT count(*) FROM events WHERE actor = 'person'") == 0


def test_a_failed_item_is_tried_again_in_a_persons_name(on: Zaia, rows: Rows) -> None:
    rows.work("needs_human", owner="human")
    assert answered(on("queue", "retry", REF, "--json", env={"ZAIA_OPERATOR": "ana"}))["state"] == "pending"
    assert rows.value("SELECT state FROM work_items") == "pending"
    assert rows.value("SELECT count(*) FROM events WHERE actor = 'person' AND by = 'ana'") > 0
    assert on("queue", "retry", REF, "--as", "ana").exit_code == 6


def test_a_waiting_item_is_moved_and_cancelled_in_a_persons_name(on: Zaia, rows: Rows) -> None:
    rows.work("pending")
    assert answered(on("queue", "prioritize", REF, "--class", "urgent", "--as", "ana", "--json"))["class"] == "urgent"
    assert on("queue", "prioritize", REF, "--class", "soon", "--as", "ana").exit_code == 2
    cancelled = answered(on("queue", "cancel", REF, "--as", "ana", "--why", "engano", "--json"))
    assert cancelled["state"] == "cancelled"
    assert rows.value("SELECT why FROM events WHERE to_state = 'cancelled'") == "engano"


def test_a_conversation_is_taken_assigned_and_resolved(on: Zaia, rows: Rows) -> None:
    rows.work("pending")
    answered(on("human", "take", REF, "--as", "ana", "--json"))
    assert rows.value("SELECT owner FROM hot") == "human"
    answered(on("human", "assign", REF, "rui", "--as", "ana", "--json"))
    assert rows.value("SELECT assignee FROM handoffs") == "rui"
    answered(on("human", "resolve", REF, "--as", "rui", "--json"))
    assert rows.value("SELECT resolved_by FROM handoffs") == "rui"


def test_a_person_answers_and_a_reply_waits_to_be_sent(on: Zaia, rows: Rows) -> None:
    rows.work("needs_human", owner="human")
    answered(on("human", "reply", REF, "Já estou vendo", "--as", "ana", "--json"))
    assert rows.value("SELECT author || ': ' || text FROM replies") == "ana: Já estou vendo"
    assert on("human", "reply", REF, " \u200b ", "--as", "ana").exit_code == 2


def test_unknown_replies_are_listed_and_settled_by_a_person(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer("unknown")
    part = f"{rows.reply}:1"
    (task,) = answered(on("reconcile", "--older-than", "0", "--json"))["tasks"]
    assert task["part"] == part
    planned = answered(on("reconcile", "--mark-sent", part, "--dry-run", "--json"))
    assert (planned["would"], planned["part"]) == ("mark_sent", part)
    assert rows.value("SELECT state FROM parts") == "unknown"
    answered(on("reconcile", "--mark-sent", part, "--as", "ana", "--json"))
    assert rows.value("SELECT state FROM parts") == "accepted"
    assert on("reconcile", "--mark-sent", part, "--as", "ana").exit_code == 6
    assert on("reconcile", "--fail", part, "--dry-run").exit_code == 6
    assert on("reconcile", "--fail", "nonsense", "--as", "ana").exit_code == 2
    assert on("reconcile", "--fail", part, "--resend", part, "--as", "ana").exit_code == 2


def test_a_fresh_unknown_reply_is_not_yet_a_persons_task(on: Zaia, rows: Rows) -> None:
    rows.work()
    rows.answer("unknown")
    rows.connection.execute("UPDATE parts SET unknown_at = %s", [datetime.now(UTC) - timedelta(seconds=30)])
    assert answered(on("reconcile", "--json")) == {"schema_version": 1, "older_than_s": 120.0, "tasks": []}
