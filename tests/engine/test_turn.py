"""What a turn makes of stored steps, changed messages and crashes between its moves."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tests.engine.cases import load
from tests.engine.world import CUSTOMER, World, whatsapp
from zaia_cli.agent.ask import CallRecord
from zaia_cli.agent.loop import StepRecord, ToolRecord, TurnOutcome
from zaia_cli.agent.prompt import RenderedPrompt
from zaia_cli.agent.tools import ToolContext, ToolResult
from zaia_cli.core.chat import ModelReply, ToolCall, ToolSpec, Usage
from zaia_cli.core.errors import LeaseLostError
from zaia_cli.engine.checkpoints import LeasedCheckpoints
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.ending import TurnEnding
from zaia_cli.engine.worker import Worker


class AnyArguments(BaseModel):
    day: str = ""
    hour: str = ""


class Counted:
    """A tool that keeps the keys of its calls."""

    arguments: type[BaseModel] = AnyArguments
    requires_approval = False

    def __init__(self, name: str, *, side_effect: bool) -> None:
        self.name = name
        self.side_effect = side_effect
        self.keys: list[str] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "conta", self.arguments.model_json_schema())

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        self.keys.append(context.idempotency_key)
        return ToolResult("feito")


async def use(world: World, tool: Counted) -> Counted:
    world.tools[tool.name] = tool
    await world.organization()
    return tool


async def claim(world: World) -> dict[str, Any]:
    await world.travel(5)
    rows = await world.db.run("turn.claim", worker="dead", limit=1, ttl_s=120.0, full=[], channel=None)
    assert len(rows) == 1
    return rows[0]


def checkpoints(world: World, claimed: dict[str, Any]) -> LeasedCheckpoints:
    committer = Committer(world.db, worker="dead")
    return LeasedCheckpoints(world.parts("dead"), committer, claimed, 1, (), RenderedPrompt("", "", ""), lambda: False)


async def change(world: World, kind: str, original: str, text: str = "") -> None:
    inner: dict[str, Any] = {"original_message_id": original}
    if kind == "edit":
        inner["message"] = {"type": "text", "text": {"body": text}}
    stamp = str(int(time.time()))
    update = {"from": CUSTOMER, "id": f"wamid.{kind}.{original}", "timestamp": stamp, "type": kind, kind: inner}
    assert await world.post(whatsapp([update])) == 200


async def save(world: World, claimed: dict[str, Any], text: str, *calls: ToolCall) -> LeasedCheckpoints:
    """Store step 1 of a claim as the loop does, and stop there as a process that dies."""
    mine = checkpoints(world, claimed)
    await mine.save_step(StepRecord(1, text, calls), "m", ModelReply(text, calls))
    return mine


async def test_036_a_worker_that_dies_after_a_tool_books_once_and_answers_once(world: World) -> None:
    case = load("036")
    asked = case["input"]["llm"][0]["tool_calls"][0]
    call = ToolCall(asked["id"], asked["name"], asked["arguments"])
    book = await use(world, Counted("book", side_effect=True))
    world.script('[[rules]]\ntext = "Marcado!"\n')
    await world.say("marca para terça 10h")
    dead = await claim(world)
    mine = await save(world, dead, "", call)
    await mine.start_tool(1, 1, call, side_effect=True)
    await book.run(AnyArguments(), mine.tool_context(1, 1))
    await mine.finish_tool(1, 1, ToolRecord("succeeded", "feito", True))
    await world.travel(121)
    await world.work()
    assert book.keys == [f"{dead['item_id']}:1:1"]
    assert len(book.keys) == case["expected"]["tool_book_executions"]
    assert world.sent() == ["Marcado!"]
    assert [row["n"] for row in await world.rows("SELECT n FROM steps ORDER BY n")] == [1, 2]


async def test_an_answer_that_was_stored_and_not_committed_is_committed_without_asking_again(world: World) -> None:
    world.script("[[rules]]\nstatus = 500\n")
    await world.say("oi")
    await save(world, await claim(world), "olá, guardado")
    await world.travel(121)
    await world.work()
    assert world.sent() == ["olá, guardado"]
    assert await world.one("SELECT count(*) FROM model_calls WHERE outcome <> 'lost'") == 0


@pytest.mark.parametrize("when", ["while the lease runs", "while it waits"])
async def test_a_stored_answer_to_an_edited_message_is_not_sent(world: World, when: str) -> None:
    (first,) = await world.say("quero 2 pizzas")
    await save(world, await claim(world), "2 pizzas, certo?")
    if when == "while it waits":
        await world.travel(121)
        await world.tick()
    await change(world, "edit", first, "quero 3 pizzas")
    await world.travel(121)
    await world.work()
    assert world.sent() == ["Recebi: quero 3 pizzas"]
    assert await world.one("SELECT superseded FROM steps WHERE n = 1") is True


@pytest.mark.parametrize(("side_effect", "sent"), [(False, []), (True, ["Feito."])])
async def test_a_request_taken_back_after_a_tool_is_answered_only_when_something_was_done(
    world: World, side_effect: bool, sent: list[str]
) -> None:
    tool = await use(world, Counted("lookup", side_effect=side_effect))
    world.script('[[rules]]\nafter_tool = "lookup"\ntext = "Feito."\ndelay_s = 0.4\n[[rules]]\ntool = "lookup"\n')
    (only,) = await world.say("mensagem errada")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM tool_executions", "succeeded")
        await change(world, "revoke", only)
        await world.until("SELECT count(*) FROM work_items WHERE state IN ('completed', 'cancelled')", 1)
    await world.work()
    assert len(tool.keys) == 1
    assert world.sent() == sent
    assert await world.one("SELECT due_at FROM hot") is None


async def test_a_refusal_of_the_content_is_not_tried_again_and_alerts_nobody_about_keys(world: World) -> None:
    world.script('[[rules]]\nstatus = 400\nbody = { error = { code = "content_policy_violation", message = "no" } }\n')
    await world.say("oi")
    await world.work()
    row = (await world.rows("SELECT state, attempts, error FROM work_items"))[0]
    assert (row["state"], row["attempts"], row["error"]["code"]) == ("needs_human", 1, "model_content_policy")
    assert [row["kind"] for row in await world.rows("SELECT kind FROM alerts")] == ["human_lane"]


async def test_turns_of_many_conversations_commit_in_one_group_and_a_stale_one_gets_nothing(world: World) -> None:
    for number in range(6):
        await world.say("oi", customer=f"55119{number:08}")
    await world.travel(5)
    claims = await world.db.run("turn.claim", worker="w", limit=6, ttl_s=120.0, full=[], channel=None)
    stale = {**claims[0], "token": UUID(int=1)}
    ending = TurnEnding(world.parts("w"), Committer(world.db, worker="w"))
    turns = [*claims, stale, claims[1]]
    done = await asyncio.gather(
        *(ending.commit(turn, 1, TurnOutcome("answer", "olá")) for turn in turns), return_exceptions=True
    )
    assert [isinstance(result, LeaseLostError) for result in done] == [False] * 6 + [True, True]
    assert await world.one("SELECT count(*) FROM replies") == 6
    assert await world.one("SELECT count(*) FROM work_items WHERE state = 'completed'") == 6
    await world.is_quiet()


async def test_money_spent_is_recorded_even_by_a_loser(world: World) -> None:
    await world.say("oi")
    mine = checkpoints(world, await claim(world))
    await world.travel(121)
    await world.tick()
    reply = ModelReply("tarde", usage=Usage(input_tokens=100, output_tokens=10))
    await mine.record_call(1, CallRecord(1, "scripted/test", "ok", 5, reply))
    rows = await world.rows("SELECT outcome, input_tokens FROM model_calls ORDER BY outcome")
    assert [(row["outcome"], row["input_tokens"]) for row in rows] == [("lost", None), ("ok", 100)]
