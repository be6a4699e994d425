"""The turn loop: order, guard, journal, resume. No database: the checkpoints are a list."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from zaia_cli.agent.ask import CallRecord
from zaia_cli.agent.loop import StepRecord, ToolRecord, TurnInput, TurnOutcome, run_turn
from zaia_cli.agent.tools import BUILT_IN, Department, Tool, ToolContext, ToolResult
from zaia_cli.core.chat import ChatMessage, ModelReply, ModelRequest, ToolCall, ToolSpec, Usage
from zaia_cli.core.config import TurnConfig
from zaia_cli.core.errors import EmptyAnswerError, ModelError, ToolLoopError, UncertainEffectError

NOBODY = UUID(int=0)
FINANCE = Department(UUID(int=1), "Financeiro", "ana")


class Listed:
    """A model that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: ModelReply | ModelError) -> None:
        self.answers = list(answers)
        self.asked: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, *, timeout_s: float) -> ModelReply:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        return answer


class Journal:
    """Checkpoints that remember what happened, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.calls: list[CallRecord] = []

    async def between_steps(self) -> None:
        self.log.append("check")

    async def record_call(self, step: int, record: CallRecord) -> None:
        self.calls.append(record)

    async def save_step(self, step: StepRecord, model: str, reply: ModelReply) -> None:
        self.log.append(f"save {step.n}")

    async def start_tool(self, step: int, ordinal: int, call: ToolCall, *, side_effect: bool) -> None:
        self.log.append(f"start {step}.{ordinal} {call.name}")

    async def finish_tool(self, step: int, ordinal: int, record: ToolRecord) -> None:
        self.log.append(f"finish {step}.{ordinal} {record.state}")

    def tool_context(self, step: int, ordinal: int) -> ToolContext:
        return ToolContext("loja", NOBODY, (FINANCE,), f"item:{step}:{ordinal}")


class BookArguments(BaseModel):
    day: str


class Book:
    """A tool with a side effect."""

    name = "book"
    arguments: type[BaseModel] = BookArguments
    side_effect = True
    requires_approval = False

    def __init__(self, error: Exception | None = None) -> None:
        self.booked: list[str] = []
        self.error = error

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "books a day", self.arguments.model_json_schema())

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        assert isinstance(arguments, BookArguments)
        if self.error:
            raise self.error
        self.booked.append(arguments.day)
        return ToolResult("booked")


def text(answer: str, tokens: int = 10) -> ModelReply:
    return ModelReply(answer, usage=Usage(input_tokens=tokens))


def call(name: str, arguments: dict[str, Any] | None = None, error: str | None = None) -> ModelReply:
    return ModelReply(
        "", (ToolCall("c1", name, arguments if error is None else None, error),), usage=Usage(input_tokens=10)
    )


def turn(
    tools: Sequence[Tool] = (), *, steps: tuple[StepRecord, ...] = (), later: tuple[ChatMessage, ...] = ()
) -> TurnInput:
    return TurnInput(
        request=ModelRequest("scripted/x", "stable", ()),
        history=(ChatMessage("user", "oi"),),
        later=later,
        steps=steps,
        next_step=len(steps) + 1,
        fallbacks=(),
        tools={**BUILT_IN, **{tool.name: tool for tool in tools}},
        limits=TurnConfig(),
        deadline=time.monotonic() + 60,
    )


async def test_an_answer_is_saved_before_its_tools_run() -> None:
    journal, tool = Journal(), Book()
    outcome = await run_turn(turn([tool]), Listed(call("book", {"day": "terça"}), text("Marcado!")), journal)
    assert outcome == TurnOutcome("answer", "Marcado!")
    assert journal.log == ["check", "save 1", "start 1.1 book", "finish 1.1 succeeded", "check", "save 2"]
    assert tool.booked == ["terça"]


async def test_the_fourth_identical_call_trips_and_is_not_made() -> None:
    tool = Book()
    with pytest.raises(ToolLoopError, match="4 times"):
        await run_turn(turn([tool]), Listed(*[call("book", {"day": "terça"})] * 5), Journal())
    assert len(tool.booked) == 3


async def test_the_order_of_keys_does_not_hide_a_repetition() -> None:
    class Two(BookArguments):
        hour: str

    tool = Book()
    tool.arguments = Two
    answers = [call("book", {"day": "1", "hour": "2"}), call("book", {"hour": "2", "day": "1"})] * 3
    with pytest.raises(ToolLoopError, match="4 times"):
        await run_turn(turn([tool]), Listed(*answers), Journal())


async def test_a_finished_answer_is_sent_even_if_its_last_step_crossed_a_limit() -> None:
    outcome = await run_turn(turn(), Listed(text("pronto", tokens=500_000)), Journal())
    assert outcome.text == "pronto"


async def test_tokens_over_the_limit_trip_when_the_turn_would_go_on() -> None:
    over = ModelReply("", (ToolCall("c", "book", {"day": "1"}),), usage=Usage(input_tokens=200_001))
    with pytest.raises(ToolLoopError, match="200001 tokens"):
        await run_turn(turn([Book()]), Listed(over), Journal())


async def test_a_transfer_ends_the_turn_and_drops_the_text_beside_it() -> None:
    reply = ModelReply("Um momento!", (ToolCall("c", "transfer_to_department", {"department": "FINANCEIRO"}),))
    outcome = await run_turn(turn(), Listed(reply), Journal())
    assert (outcome.kind, outcome.text) == ("transfer", "")
    assert outcome.end is not None
    assert outcome.end.department == FINANCE


@pytest.mark.parametrize("name", ["Jurídico", "%", "F*", ""])
async def test_an_unknown_department_is_asked_back(name: str) -> None:
    model = Listed(call("transfer_to_department", {"department": name}), text("Qual setor?"))
    outcome = await run_turn(turn(), model, Journal())
    assert outcome.text == "Qual setor?"
    assert "Setores: Financeiro" in model.asked[1].messages[-1].content


async def test_bad_arguments_become_a_sentence_and_the_tool_does_not_run() -> None:
    tool = Book()
    model = Listed(call("book", {"day": 6}), call("book", error="Argumentos cortados."), text("ok"))
    await run_turn(turn([tool]), model, Journal())
    results = [m.content for m in model.asked[-1].messages if m.role == "tool"]
    assert results[0].startswith("Argumento inválido em day")
    assert results[1] == "Argumentos cortados."
    assert tool.booked == []


async def test_identical_parallel_calls_run_once_and_each_has_a_result() -> None:
    tool = Book()
    twice = ModelReply("", (ToolCall("a", "book", {"day": "1"}), ToolCall("b", "book", {"day": "1"})))
    model = Listed(twice, text("ok"))
    await run_turn(turn([tool]), model, Journal())
    assert tool.booked == ["1"]
    assert [m.tool_call_id for m in model.asked[1].messages if m.role == "tool"] == ["a", "b"]


async def test_a_stored_step_is_not_paid_again_and_its_result_is_reused() -> None:
    tool = Book()
    stored = StepRecord(1, "", (ToolCall("c1", "book", {"day": "1"}),), {1: ToolRecord("succeeded", "booked", True)})
    model = Listed(text("Marcado!"))
    outcome = await run_turn(turn([tool], steps=(stored,)), model, Journal())
    assert outcome.text == "Marcado!"
    assert tool.booked == []
    assert len(model.asked) == 1


async def test_a_stored_final_answer_needs_no_model() -> None:
    outcome = await run_turn(turn(steps=(StepRecord(1, "pronto"),)), Listed(), Journal())
    assert outcome.text == "pronto"


async def test_what_arrived_after_a_stored_answer_is_answered_behind_it() -> None:
    model = Listed(text("e dois"))
    later = (ChatMessage("user", "mais uma"),)
    outcome = await run_turn(turn(steps=(StepRecord(1, "um"),), later=later), model, Journal())
    assert outcome.text == "um\n\ne dois"
    assert [m.content for m in model.asked[0].messages] == ["oi", "um", "mais uma"]


async def test_a_side_effect_that_never_reported_goes_to_a_person() -> None:
    stored = StepRecord(1, "", (ToolCall("c1", "book", {"day": "1"}),), {1: ToolRecord("started", None, True)})
    tool = Book()
    with pytest.raises(UncertainEffectError):
        await run_turn(turn([tool], steps=(stored,)), Listed(), Journal())
    assert tool.booked == []


async def test_a_side_effect_that_fails_while_acting_goes_to_a_person() -> None:
    with pytest.raises(UncertainEffectError):
        await run_turn(turn([Book(OSError("reset"))]), Listed(call("book", {"day": "1"})), Journal())


async def test_a_call_that_needs_approval_stops_the_turn_before_it_runs() -> None:
    tool = Book()
    tool.requires_approval = True
    outcome = await run_turn(turn([tool]), Listed(call("book", {"day": "1"})), Journal())
    assert outcome.kind == "approval"
    assert tool.booked == []


@pytest.mark.parametrize(("decision", "booked"), [("approved", ["1"]), ("rejected", [])])
async def test_the_turn_goes_on_with_the_decision(decision: Any, booked: list[str]) -> None:
    tool = Book()
    tool.requires_approval = True
    waiting = ToolRecord("waiting_approval", None, True, decision, "acima do limite")
    stored = StepRecord(1, "", (ToolCall("c1", "book", {"day": "1"}),), {1: waiting})
    model = Listed(text("ok"))
    await run_turn(turn([tool], steps=(stored,)), model, Journal())
    assert tool.booked == booked
    assert ("não aprovou. acima do limite" in model.asked[0].messages[-1].content) == (decision == "rejected")


async def test_empty_and_leaked_answers_are_retried_once_and_never_sent() -> None:
    journal = Journal()
    model = Listed(text("\u200b"), text('<tool_call>{"name": "x", "arguments": {}}</tool_call>'))
    with pytest.raises(EmptyAnswerError):
        await run_turn(turn(), model, journal)
    assert [record.outcome for record in journal.calls] == ["ok", "ok"]


async def test_a_passing_failure_is_tried_again_and_every_try_is_recorded() -> None:
    journal = Journal()
    outcome = await run_turn(turn(), Listed(ModelError("transient", "500"), text("ok")), journal)
    assert outcome.text == "ok"
    assert [record.outcome for record in journal.calls] == ["model_transient", "ok"]


async def test_a_terminal_failure_ends_it_at_once() -> None:
    model = Listed(ModelError("payment", "quota"), text("ok"))
    with pytest.raises(ModelError):
        await run_turn(turn(), model, Journal())
    assert len(model.asked) == 1


async def test_a_wait_longer_than_the_rest_of_the_time_is_not_waited() -> None:
    model = Listed(ModelError("rate_limit", "slow down", retry_after_s=600), text("ok"))
    started = time.monotonic()
    with pytest.raises(ModelError):
        await run_turn(turn(), model, Journal())
    assert time.monotonic() - started < 5


async def test_a_copy_of_a_stored_call_does_not_run_after_a_resume() -> None:
    tool = Book()
    calls = (ToolCall("a", "book", {"day": "1"}), ToolCall("b", "book", {"day": "1"}))
    stored = StepRecord(1, "", calls, {1: ToolRecord("succeeded", "booked", True)})
    await run_turn(turn([tool], steps=(stored,)), Listed(text("ok")), Journal())
    assert tool.booked == []


async def test_a_stored_final_answer_over_the_limit_is_still_sent() -> None:
    outcome = await run_turn(turn(steps=(StepRecord(1, "pronto", tokens=500_000),)), Listed(), Journal())
    assert outcome.text == "pronto"
