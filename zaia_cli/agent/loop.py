"""One turn, step by step, without a database.

Idea: model call, answer saved, tool calls, results saved, next; the same loop runs in production, replay and
evaluation because everything outside comes through ``Checkpoints``. Invariant: a stored step is never paid again, every
call has exactly one result, and a side effect that never reported goes to a person. Precedence at the end of a step:
handed off, complete, tripped. Tested in ``tests/unit/test_loop.py`` and ``tests/engine``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from zaia_cli.agent.ask import CallRecord, ask
from zaia_cli.agent.guard import Guard, canonical_call
from zaia_cli.agent.tools import Tool, ToolContext, ToolResult, TurnEnd, invalid_arguments
from zaia_cli.core.chat import ChatMessage, ChatModel, ModelReply, ModelRequest, ToolCall
from zaia_cli.core.config import TurnConfig
from zaia_cli.core.errors import ToolLoopError, TurnError, UncertainEffectError

__all__ = ["Checkpoints", "StepRecord", "ToolRecord", "TurnInput", "TurnOutcome", "run_turn", "step_messages"]

_log = logging.getLogger(__name__)

_FAILED = "A ferramenta falhou agora. Não diga que deu certo; tente outra coisa ou passe para uma pessoa."
_SKIPPED = "não executado: a conversa mudou de mãos nesta etapa"


@dataclass(slots=True)
class ToolRecord:
    """What the journal holds of one call."""

    state: Literal["started", "succeeded", "failed", "waiting_approval"]
    result: str | None = None
    side_effect: bool = False
    approval: Literal["waiting", "approved", "rejected"] | None = None
    why: str = ""


@dataclass(slots=True)
class StepRecord:
    """One model answer of this item and the results of its calls by ordinal (from 1)."""

    n: int
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tools: dict[int, ToolRecord] = field(default_factory=dict)
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Everything a turn reads.

    ``history`` ends with what was there when the first stored step was taken; ``later`` is what arrived after the last
    stored step. ``next_step`` is the first free step number of the item. ``deadline`` is monotonic seconds.
    """

    request: ModelRequest
    history: tuple[ChatMessage, ...]
    later: tuple[ChatMessage, ...]
    steps: tuple[StepRecord, ...]
    next_step: int
    fallbacks: tuple[str, ...]
    tools: Mapping[str, Tool]
    limits: TurnConfig
    deadline: float


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended: an answer, a turn-ending act, or a call that needs a person's decision."""

    kind: Literal["answer", "transfer", "close", "approval"]
    text: str = ""
    end: TurnEnd | None = None
    approval: tuple[int, int, ToolCall] | None = None


class Checkpoints(Protocol):
    """What the engine does between the loop's moves. Each may raise ``TurnError`` to end the turn."""

    async def between_steps(self) -> None: ...
    async def record_call(self, step: int, record: CallRecord) -> None: ...
    async def save_step(self, step: StepRecord, model: str, reply: ModelReply) -> None: ...
    async def start_tool(self, step: int, ordinal: int, call: ToolCall, *, side_effect: bool) -> None: ...
    async def finish_tool(self, step: int, ordinal: int, record: ToolRecord) -> None: ...
    def tool_context(self, step: int, ordinal: int) -> ToolContext: ...


def step_messages(step: StepRecord) -> list[ChatMessage]:
    """Write one step as history: the assistant's message, then one result per call in call order."""
    messages = [ChatMessage("assistant", step.text, step.tool_calls)]
    for ordinal, call in enumerate(step.tool_calls, start=1):
        record = step.tools.get(ordinal)
        result = record.result if record and record.result is not None else "result unavailable; do not assume it ran"
        messages.append(ChatMessage("tool", result, tool_call_id=call.id))
    return messages


async def run_turn(turn: TurnInput, model: ChatModel, checkpoints: Checkpoints) -> TurnOutcome:
    """Run one turn to its outcome, continuing after the steps that are stored.

    Args:
        turn: What to read and the limits.
        model: The port; called at most ``limits.max_steps`` times, tries aside.
        checkpoints: Saving, journalling, ownership.

    Raises:
        TurnError: The turn cannot go on; ``retryable`` says whether another attempt may.
    """
    guard = Guard(turn.limits.guard)
    steps = list(turn.steps)
    for step in steps:
        guard.count(step.tool_calls, step.tokens)
    if steps and steps[-1].tool_calls and (ended := await _finish_step(steps[-1], turn, guard, checkpoints)):
        return ended
    if steps and not steps[-1].tool_calls and not turn.later:
        return TurnOutcome("answer", _said(steps))
    while True:
        await checkpoints.between_steps()
        remaining_s = turn.deadline - time.monotonic()
        if len(steps) >= turn.limits.max_steps or remaining_s <= 0:
            raise ToolLoopError(f"no answer after {len(steps)} steps and {turn.limits.deadline_s:g} s")
        step, reply, name = await _ask(turn, steps, model, checkpoints, min(turn.limits.model_timeout_s, remaining_s))
        guard.count(step.tool_calls, step.tokens)
        await checkpoints.save_step(step, name, reply)
        steps.append(step)
        if not step.tool_calls:
            return TurnOutcome("answer", _said(steps))
        if ended := await _finish_step(step, turn, guard, checkpoints):
            return ended


async def _ask(
    turn: TurnInput, steps: Sequence[StepRecord], model: ChatModel, checkpoints: Checkpoints, timeout_s: float
) -> tuple[StepRecord, ModelReply, str]:
    n = turn.next_step + len(steps) - len(turn.steps)
    messages = [*turn.history]
    for step in steps[: len(turn.steps)]:
        messages.extend(step_messages(step))
    messages.extend(turn.later)
    for step in steps[len(turn.steps) :]:
        messages.extend(step_messages(step))

    async def record(call: CallRecord) -> None:
        await checkpoints.record_call(n, call)

    question = ModelRequest(
        model=turn.request.model,
        stable=turn.request.stable,
        context=turn.request.context,
        messages=tuple(messages),
        tools=turn.request.tools,
        max_tokens=turn.request.max_tokens,
        temperature=turn.request.temperature,
    )
    reply, name = await ask(model, question, fallbacks=turn.fallbacks, timeout_s=timeout_s, record=record)
    tokens = reply.usage.total_tokens if reply.usage is not None else _estimated_tokens(question, reply)
    return StepRecord(n, reply.text, reply.tool_calls, tokens=tokens), reply, name


def _estimated_tokens(request: ModelRequest, reply: ModelReply) -> int:
    return (len(request.stable) + sum(len(m.content) for m in request.messages) + len(reply.text)) // 4


def _said(steps: Sequence[StepRecord]) -> str:
    return "\n\n".join(step.text for step in steps if not step.tool_calls)


async def _finish_step(step: StepRecord, turn: TurnInput, guard: Guard, checkpoints: Checkpoints) -> TurnOutcome | None:
    """Give every call of a step its result; None when the turn goes on."""
    ending = {name for name in ("transfer_to_department", "close_conversation") if name in turn.tools}
    if not any(call.name in ending for call in step.tool_calls):
        guard.check()
    end: TurnEnd | None = None
    done: dict[str, ToolRecord] = {}
    for ordinal, call in enumerate(step.tool_calls, start=1):
        stored = step.tools.get(ordinal)
        tool = turn.tools.get(call.name)
        same = done.get(canonical_call(call))
        if end is not None:
            step.tools[ordinal] = ToolRecord("failed", _SKIPPED)
            continue
        if stored is not None and stored.state in ("succeeded", "failed") and call.name not in ending:
            done[canonical_call(call)] = stored
            continue
        if tool is None or call.arguments is None:
            names = ", ".join(turn.tools)
            sentence = call.error or f"Não existe a ferramenta {call.name!r}. Existem: {names}."
            step.tools[ordinal] = ToolRecord("failed", sentence)
            continue
        if same is not None:
            step.tools[ordinal] = same
            continue
        if tool.requires_approval and (stored is None or stored.approval in (None, "waiting")):
            return TurnOutcome("approval", approval=(step.n, ordinal, call))
        if stored is not None and stored.approval == "rejected":
            step.tools[ordinal] = ToolRecord("failed", f"A pessoa responsável não aprovou. {stored.why}".strip())
            await checkpoints.finish_tool(step.n, ordinal, step.tools[ordinal])
            continue
        record, end = await _run_tool(step.n, ordinal, call, tool, stored, turn, checkpoints)
        step.tools[ordinal] = done[canonical_call(call)] = record
    if end is not None:
        return TurnOutcome(end.kind, end=end)
    if step.tool_calls:
        guard.check()
    return None


async def _run_tool(
    n: int,
    ordinal: int,
    call: ToolCall,
    tool: Tool,
    stored: ToolRecord | None,
    turn: TurnInput,
    checkpoints: Checkpoints,
) -> tuple[ToolRecord, TurnEnd | None]:
    if stored is not None and stored.state == "started" and stored.side_effect:
        raise UncertainEffectError(f"{call.name} was started before and never reported; check whether it happened")
    arguments, sentence = invalid_arguments(tool, call.arguments or {})
    if arguments is None:
        return ToolRecord("failed", sentence), None
    await checkpoints.start_tool(n, ordinal, call, side_effect=tool.side_effect)
    limit_s = max(0.0, min(turn.limits.tool_timeout_s, turn.deadline - time.monotonic()))
    try:
        async with asyncio.timeout(limit_s):
            result = await tool.run(arguments, checkpoints.tool_context(n, ordinal))
        record = ToolRecord("succeeded", result.text, tool.side_effect)
    except TurnError:
        raise
    except Exception:
        _log.exception("tool %s failed", call.name)
        if tool.side_effect:
            raise UncertainEffectError(f"{call.name} failed while acting; check whether it happened") from None
        result = ToolResult(_FAILED)
        record = ToolRecord("failed", result.text)
    await checkpoints.finish_tool(n, ordinal, record)
    return record, result.end
