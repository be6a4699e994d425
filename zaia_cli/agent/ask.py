"""Asking the model within one deadline: tries, fallbacks, and a record of each.

Idea: this is the only retry loop around models. Invariant: all tries of one question share ``model_timeout_s``; each
request leaves a record, failed ones too. Tested in ``tests/unit/test_loop.py``.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from zaia_cli.core.chat import ChatModel, ModelReply, ModelRequest
from zaia_cli.core.errors import EmptyAnswerError, ModelError
from zaia_cli.core.text import is_effectively_empty

__all__ = ["CallRecord", "ask", "is_sendable"]

_TRIES_PER_MODEL = 2
_BACKOFF_S = 0.5
_LEAKED_CALL = re.compile(r"<tool_call>|^\s*\{\s*\"(name|function)\"\s*:.*\"(arguments|parameters)\"\s*:", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One model request as the ledger needs it. ``outcome`` is ``ok`` or the error's code."""

    number: int
    model: str
    outcome: str
    latency_ms: int
    reply: ModelReply | None = None
    error: ModelError | None = None


def is_sendable(text: str) -> bool:
    """Whether ``text`` may go to a customer: something is visible and it is not a tool call printed as text."""
    return not is_effectively_empty(text) and _LEAKED_CALL.search(text) is None


async def ask(
    model: ChatModel,
    request: ModelRequest,
    *,
    fallbacks: Sequence[str],
    timeout_s: float,
    record: Callable[[CallRecord], Awaitable[None]],
) -> tuple[ModelReply, str]:
    """Get one usable answer.

    Args:
        model: The port.
        request: The question, addressed to the first model.
        fallbacks: Model ids tried in order after passing failures.
        timeout_s: Seconds for everything: tries, waits and fallbacks.
        record: Called once per request, before the next one starts.

    Returns:
        The reply and the model id that gave it.

    Raises:
        ModelError: The last failure; a failure that is not passing ends it at once.
        EmptyAnswerError: The model said nothing twice.
    """
    ends_at = time.monotonic() + timeout_s
    failure: ModelError | None = None
    number = 0
    empty_count = 0
    for name in (request.model, *fallbacks):
        for attempt in range(_TRIES_PER_MODEL):
            if attempt > 0 and failure is not None:
                wait_s = failure.retry_after_s or _BACKOFF_S
                if wait_s > ends_at - time.monotonic() - 1:
                    break
                await asyncio.sleep(wait_s)
            remaining_s = ends_at - time.monotonic()
            if remaining_s <= 0:
                break
            number += 1
            outcome = await _try_once(model, replace(request, model=name), number, remaining_s)
            await record(outcome)
            if outcome.error is not None:
                failure = outcome.error
                if not failure.retryable:
                    raise failure
                continue
            assert outcome.reply is not None
            if outcome.reply.tool_calls or is_sendable(outcome.reply.text):
                return outcome.reply, name
            failure = None
            empty_count += 1
            if empty_count >= 2:
                raise EmptyAnswerError("the model gave an empty or unusable answer twice")
    if failure is None:
        raise EmptyAnswerError("the model gave no usable answer in time")
    raise failure


async def _try_once(model: ChatModel, request: ModelRequest, number: int, timeout_s: float) -> CallRecord:
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            reply = await model.complete(request, timeout_s=timeout_s)
    except ModelError as error:
        return CallRecord(number, request.model, error.code, _elapsed_ms(started), error=error)
    except TimeoutError:
        late = ModelError("timeout", f"no answer within {timeout_s:.0f} s")
        return CallRecord(number, request.model, late.code, _elapsed_ms(started), error=late)
    return CallRecord(number, request.model, "ok", _elapsed_ms(started), reply=reply)


def _elapsed_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
