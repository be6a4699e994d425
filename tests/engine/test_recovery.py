"""Retries, expired leases, stale owners, changed messages: what happens when a turn does not simply finish."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.world import CUSTOMER, World, message, whatsapp
from zaia_cli.agent.loop import StepRecord, TurnOutcome
from zaia_cli.agent.prompt import RenderedPrompt
from zaia_cli.agent.tools import ToolContext, ToolResult
from zaia_cli.core.chat import ModelReply, ToolCall, ToolSpec
from zaia_cli.core.errors import LeaseLostError, ModelError
from zaia_cli.engine.checkpoints import LeasedCheckpoints
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.ending import TurnEnding
from zaia_cli.engine.turn import TurnJob
from zaia_cli.engine.worker import Worker

HANDOFF = "Vou te passar para um atendente."


class BookArguments(BaseModel):
    day: str


class Book:
    """A side effect that counts itself; ``hold`` keeps the call open until it is set."""

    name = "book"
    arguments: type[BaseModel] = BookArguments
    side_effect = True
    requires_approval = False

    def __init__(self) -> None:
        self.days: list[str] = []
        self.keys: list[str] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "marca", self.arguments.model_json_schema())

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        assert isinstance(arguments, BookArguments)
        self.days.append(arguments.day)
        self.keys.append(context.idempotency_key)
        return ToolResult("marcado")


async def item(world: World) -> dict[str, Any]:
    rows = await world.rows("SELECT * FROM work_items ORDER BY opened_at")
    return rows[0]


async def claim(world: World, worker: str = "dead") -> dict[str, Any]:
    """Claim as a worker that will not report."""
    rows = await world.db.run("turn.claim", worker=worker, limit=1, ttl_s=120.0, full=[], channel=None)
    assert len(rows) == 1
    return rows[0]


async def settled_message(world: World, text: str = "oi") -> None:
    await world.say(text)
    await world.travel(5)


async def test_a_passing_failure_waits_thirty_seconds_and_is_tried_again(world: World) -> None:
    world.script("[[rules]]\nnth = 1\nstatus = 500\n[[rules]]\nnth = 2\nstatus = 500\n[[rules]]\ntext = 'pronto'\n")
    await world.say("oi")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM attempts", "failed")
        wait_s = await world.one("SELECT extract(epoch FROM due_at - now())::float8 FROM work_items")
        assert 25 < wait_s <= 30
        assert world.sent() == []
        await world.travel(31)
        await world.until("SELECT state FROM work_items", "completed")
    await world.work()
    assert world.sent() == ["pronto"]
    states = await world.rows("SELECT n, state FROM attempts ORDER BY n")
    assert [(row["n"], row["state"]) for row in states] == [(1, "failed"), (2, "succeeded")]
    outcomes = [row["outcome"] for row in await world.rows("SELECT outcome FROM model_calls ORDER BY at")]
    assert outcomes == ["model_transient", "model_transient", "ok"]


async def test_after_two_attempts_a_person_has_it_and_the_customer_knows_once(world: World) -> None:
    world.script("[[rules]]\nstatus = 500\n")
    world.configure(recovery={"retry_delay_s": 0.05})
    await world.say("oi")
    await world.work()
    found = await item(world)
    assert (found["state"], found["attempts"], found["error"]["code"]) == ("needs_human", 2, "model_transient")
    assert {row["state"] for row in await world.rows("SELECT state FROM attempts")} == {"failed"}
    assert world.sent() == [HANDOFF]
    assert await world.one("SELECT count(*) FROM handoffs WHERE state = 'open' AND assignee = 'plantao'") == 1
    await world.is_quiet()


QUOTA = '{ error = { code = "insufficient_quota", type = "insufficient_quota", message = "quota" } }'


@pytest.mark.parametrize(
    ("status", "body", "code", "alerts"),
    [
        (429, QUOTA, "model_payment", 1),
        (401, '{ error = { message = "bad key" } }', "model_unauthorized", 1),
        (404, '{ error = { message = "no such model" } }', "model_bad_request", 0),
        (400, '{ error = { code = "context_length_exceeded", message = "too long" } }', "model_context_length", 0),
    ],
)
async def test_a_terminal_failure_is_not_tried_again(
    world: World, status: int, body: str, code: str, alerts: int
) -> None:
    world.script(f"[[rules]]\nstatus = {status}\nbody = {body}\n")
    await world.say("oi")
    await world.work()
    found = await item(world)
    assert (found["state"], found["attempts"], found["error"]["code"]) == ("needs_human", 1, code)
    assert await world.one("SELECT count(*) FROM model_calls") == 1
    assert await world.one("SELECT count(*) FROM alerts WHERE kind LIKE 'model_%%'") == alerts
    assert world.sent() == [HANDOFF]


async def test_a_provider_that_asks_for_a_longer_wait_gets_it(world: World) -> None:
    world.script(
        '[[rules]]\nstatus = 429\nheaders = { retry-after = "90" }\nbody = { error = { message = "slow down" } }\n'
    )
    await world.say("oi")
    await world.work_until("SELECT state FROM attempts", "failed")
    assert await world.one("SELECT extract(epoch FROM due_at - now())::float8 > 80 FROM work_items") is True


async def test_an_expired_lease_is_recovered_and_the_first_owner_can_write_nothing(world: World) -> None:
    await settled_message(world)
    stale = await claim(world)
    await world.travel(121)
    await world.tick()
    found = await item(world)
    assert (found["state"], found["attempts"], found["error"]["code"]) == ("pending", 1, "lease_expired")
    lost = (await world.rows("SELECT outcome, cost_usd FROM model_calls"))[0]
    assert lost == {"outcome": "lost", "cost_usd": None}

    committer = Committer(world.db, worker="dead")
    checkpoints = LeasedCheckpoints(
        world.parts("dead"), committer, stale, 1, (), RenderedPrompt("", "", ""), lambda: False
    )
    with pytest.raises(LeaseLostError):
        await checkpoints.between_steps()
    with pytest.raises(LeaseLostError):
        await checkpoints.save_step(StepRecord(1, "tarde"), "m", ModelReply("tarde"))
    with pytest.raises(LeaseLostError):
        await checkpoints.start_tool(1, 1, ToolCall("c", "book", {}), side_effect=True)
    ending = TurnEnding(world.parts("dead"), committer)
    for late in (
        ending.commit(stale, 1, TurnOutcome("answer", "tarde")),
        ending.fail(stale, ModelError("transient", "x")),
        ending.give_back(stale, "x"),
        ending.nothing_left(stale, 1),
    ):
        with pytest.raises(LeaseLostError):
            await late
    assert await world.one("SELECT count(*) FROM steps") == 0
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert await world.one("SELECT attempts FROM work_items") == 2
    await world.is_quiet()


async def test_several_schedulers_at_once_reclaim_a_stalled_turn_once(world: World) -> None:
    """Case 021: recovery is a conditional write, not a job that could stall itself."""
    await settled_message(world)
    await claim(world)
    await world.travel(121)
    await asyncio.gather(*(world.tick() for _ in range(6)))
    assert await world.one("SELECT count(*) FROM events WHERE why = 'lease expired'") == 1
    assert await world.one("SELECT attempts FROM work_items") == 1
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_an_expired_lease_with_no_attempt_left_goes_to_a_person(world: World) -> None:
    world.configure(recovery={"max_attempts": 1})
    await settled_message(world)
    await claim(world)
    await world.travel(121)
    await world.tick()
    await world.work()
    assert (await item(world))["state"] == "needs_human"
    assert world.sent() == [HANDOFF]


async def test_an_item_processing_for_half_an_hour_is_reclaimed_whatever_its_lease_says(world: World) -> None:
    await settled_message(world)
    await claim(world)
    await world.travel(1801)
    await world.rows("UPDATE hot SET lease_until = now() + interval '1 hour' RETURNING 1")
    await world.tick()
    assert (await item(world))["state"] == "pending"
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'reclaimed'") == 1
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_a_side_effect_happens_once_although_the_turn_is_repeated(world: World) -> None:
    book = Book()
    world.tools[book.name] = book
    await world.organization()
    world.script(
        '[[rules]]\nnth = 1\ntool = "book"\nargs = { day = "terça" }\n[[rules]]\nnth = 2\nhang = true\n'
        '[[rules]]\ntext = "Marcado!"\n'
    )
    world.configure(turn={"model_timeout_s": 0.5}, recovery={"retry_delay_s": 0.05})
    await world.say("marca para terça 10h")
    await world.work()
    assert book.days == ["terça"]
    assert world.sent() == ["Marcado!"]
    assert await world.one("SELECT count(*) FROM steps WHERE n = 1") == 1
    assert await world.one("SELECT attempts FROM work_items") == 2


async def test_a_side_effect_that_never_reported_is_not_repeated_and_a_person_looks(world: World) -> None:
    book = Book()
    world.tools[book.name] = book
    await world.organization()
    world.script('[[rules]]\nnth = 1\ntool = "book"\nargs = { day = "terça" }\n[[rules]]\ntext = "Marcado!"\n')
    await settled_message(world)
    stale = await claim(world)
    checkpoints = LeasedCheckpoints(
        world.parts("dead"), Committer(world.db, worker="dead"), stale, 1, (), RenderedPrompt("", "", ""), lambda: False
    )
    call = ToolCall("c1", "book", {"day": "terça"})
    await checkpoints.save_step(StepRecord(1, "", (call,)), "m", ModelReply("", (call,)))
    await checkpoints.start_tool(1, 1, call, side_effect=True)
    await world.travel(121)
    await world.work()
    assert book.days == []
    assert (await item(world))["error"]["code"] == "uncertain_effect"
    assert world.sent() == [HANDOFF]


async def test_a_retry_absorbs_the_newer_request_and_answers_both_at_once(world: World) -> None:
    world.script("[[rules]]\nnth = 1\nstatus = 500\n[[rules]]\nnth = 2\nstatus = 500\n[[rules]]\ntext = '{burst}'\n")
    world.configure(recovery={"retry_delay_s": 30})
    await world.say("um")
    await world.work_until("SELECT state FROM attempts", "failed")
    await world.say("dois")
    await world.travel(31)
    await world.work()
    assert world.sent() == ["um | dois"]
    assert {row["state"] for row in await world.rows("SELECT state FROM work_items")} == {"completed"}


async def test_what_was_opened_during_an_attempt_becomes_an_alias_when_it_fails(world: World) -> None:
    world.script(
        "[[rules]]\nnth = 1\nstatus = 500\ndelay_s = 0.4\n"
        "[[rules]]\nnth = 2\nstatus = 500\n[[rules]]\ntext = '{burst}'\n"
    )
    world.configure(recovery={"retry_delay_s": 0.1})
    await world.say("um")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await world.say("dois")
        await world.until("SELECT count(*) FROM work_items WHERE state = 'completed'", 1)
    await world.work()
    assert world.sent() == ["um | dois"]
    rows = await world.rows("SELECT reference, state, result FROM work_items ORDER BY opened_at")
    assert [row["state"] for row in rows] == ["completed", "cancelled"]
    assert await world.one("SELECT reference FROM item_aliases") == rows[1]["reference"]


@pytest.mark.parametrize("change", ["edit", "revoke"])
async def test_a_change_in_the_middle_of_a_turn_sends_it_round_again(world: World, change: str) -> None:
    world.script("[[rules]]\nburst = '2 pizzas'\ntext = 'velho'\ndelay_s = 0.4\n[[rules]]\ntext = 'novo: {burst}'\n")
    first, second = await world.say("quero 2 pizzas", "e um suco")
    inner = {"original_message_id": first}
    if change == "edit":
        inner |= {"message": {"type": "text", "text": {"body": "quero 3 pizzas"}}}  # type: ignore[dict-item]
    stamp = str(int(time.time()))
    update = {"from": CUSTOMER, "id": "wamid.CHANGE", "timestamp": stamp, "type": change, change: inner}
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await world.until("SELECT count(*) FROM attempts", 1)
        assert await world.post(whatsapp([update])) == 200
        await world.until("SELECT state FROM work_items", "completed")
    await world.work()
    assert world.sent() == ["novo: quero 3 pizzas | e um suco" if change == "edit" else "novo: e um suco"]
    assert await world.one("SELECT attempts FROM work_items") == 1
    assert second


async def test_everything_revoked_in_the_middle_of_a_turn_is_not_answered(world: World) -> None:
    world.script("[[rules]]\ntext = 'velho'\ndelay_s = 0.4\n")
    (only,) = await world.say("mensagem errada")
    update = {"from": CUSTOMER, "id": "wamid.R", "timestamp": str(int(time.time())), "type": "revoke"}
    update["revoke"] = {"original_message_id": only}  # type: ignore[assignment]
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        assert await world.post(whatsapp([update])) == 200
        await world.until("SELECT state FROM work_items", "cancelled")
    assert world.graph.sends == []
    assert await world.one("SELECT due_at FROM hot") is None
    await world.is_quiet()


async def test_a_message_between_claim_and_history_is_read_and_its_own_item_is_covered(world: World) -> None:
    await settled_message(world, "um")
    taken = await claim(world, "worker-1")
    await world.say("dois")
    job = TurnJob(world.parts(), Committer(world.db, worker="worker-1"), lambda: False)
    await job.run(taken, time.monotonic())
    await world.work()
    assert world.sent() == ["Recebi: um | dois"]
    rows = await world.rows("SELECT state, read_until, result FROM work_items ORDER BY opened_at")
    assert [(row["state"], row["read_until"]) for row in rows] == [("completed", 2), ("completed", 2)]
    assert rows[1]["result"]["outcome"] == "answer"
    assert await world.one("SELECT due_at FROM hot") is None


async def test_two_messages_of_one_conversation_in_one_webhook_are_numbered_in_order(world: World) -> None:
    body = whatsapp([message("um", "wamid.1"), message("dois", "wamid.2"), message("um", "wamid.1")])
    assert await world.post(body) == 200
    rows = await world.rows("SELECT seq, text FROM messages ORDER BY seq")
    assert [(row["seq"], row["text"]) for row in rows] == [(1, "um"), (2, "dois")]
    await world.work()
    assert world.sent() == ["Recebi: um | dois"]


async def test_the_numbers_of_messages_have_no_gap_under_concurrent_webhooks(world: World) -> None:
    world.configure(turn={"coalesce_s": 1, "coalesce_max_s": 5})
    bodies = [whatsapp([message(f"m{n}", f"wamid.{n}")]) for n in range(50)]
    assert set(await asyncio.gather(*(world.post(body) for body in bodies))) == {200}
    rows = await world.rows("SELECT seq FROM messages ORDER BY seq")
    assert [row["seq"] for row in rows] == list(range(1, 51))
    assert await world.one("SELECT count(*) FROM contacts") == 1
    assert await world.one("SELECT count(*) FROM work_items") == 1


async def test_a_claim_that_finds_no_item_gives_its_lease_back(world: World) -> None:
    await settled_message(world)
    taken = await claim(world)
    await _forget_the_claim(world)
    await world.db.run("turn.unlease", [taken])
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    await world.is_quiet()


async def test_a_lease_without_an_attempt_and_an_item_that_is_not_due_are_healed(world: World) -> None:
    await settled_message(world)
    await claim(world)
    await _forget_the_claim(world)
    await world.travel(181)
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    await world.is_quiet()


async def _forget_the_claim(world: World) -> None:
    """Leave the lease and nothing else of a claim."""
    await world.rows("DELETE FROM attempts RETURNING 1")
    await world.rows("UPDATE work_items SET state = 'pending', due_at = now() RETURNING 1")
    await world.rows(
        """INSERT INTO events (organization_id, item_id, entity, entity_id, from_state, to_state, actor, by)
           SELECT organization_id, id, 'item', id::text, 'processing', 'pending', 'scheduler', 'test' FROM work_items
           RETURNING 1"""
    )
