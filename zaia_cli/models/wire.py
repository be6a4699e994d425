"""From a model request to the messages on the wire (the OpenAI shape that litellm takes).

Idea: providers reject broken history in different ways, so it is repaired here and nowhere else. Invariant: every
call is followed directly by exactly one result, in call order; nothing on the wire is empty; the stable prefix comes
first and is byte-identical over requests. Tested in ``tests/models/test_wire.py``.

Source: ``shared/facts/providers.md`` sections 4 and 5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from zaia_cli.core.chat import ChatMessage, ModelRequest, ToolCall, ToolSpec
from zaia_cli.core.text import is_effectively_empty

__all__ = ["MISSING_RESULT", "repaired_history", "wire_messages", "wire_tools"]

MISSING_RESULT = "result unavailable; do not assume it ran"
_EMPTY_RESULT = "the tool returned nothing"


def repaired_history(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Make a history that every provider accepts.

    A call without a result gets a synthetic one, a result without a call and a second result are dropped, results move
    next to their call in call order, and messages without any text or call are dropped.
    """
    results = _results_by_call(messages)
    repaired: list[ChatMessage] = []
    for index, message in enumerate(messages):
        if message.role == "tool" or (is_effectively_empty(message.content) and not message.tool_calls):
            continue
        repaired.append(message)
        for ordinal, call in enumerate(message.tool_calls):
            content = results.get((index, ordinal), MISSING_RESULT)
            content = _EMPTY_RESULT if is_effectively_empty(content) else content
            repaired.append(ChatMessage("tool", content, tool_call_id=call.id))
    return repaired


def _results_by_call(messages: Sequence[ChatMessage]) -> dict[tuple[int, int], str]:
    waiting: dict[str, list[tuple[int, int]]] = {}
    results: dict[tuple[int, int], str] = {}
    for index, message in enumerate(messages):
        for ordinal, call in enumerate(message.tool_calls):
            waiting.setdefault(call.id, []).append((index, ordinal))
        if message.role == "tool" and message.tool_call_id is not None and waiting.get(message.tool_call_id):
            results[waiting[message.tool_call_id].pop()] = message.content
    return results


def wire_messages(request: ModelRequest, *, with_cache_control: bool) -> list[dict[str, Any]]:
    """Write system prompt and history as wire messages.

    Args:
        request: The request; its history is repaired first.
        with_cache_control: Mark the end of the stable prefix (Anthropic); elsewhere the mark is refused or costs
            hidden requests, and the system prompt is one plain string.
    """
    wired = [_wire_message(message) for message in repaired_history(request.messages)]
    stable, context = (_ended(block) for block in (request.stable, request.context))
    if not stable + context:
        return wired
    if not with_cache_control:
        return [{"role": "system", "content": stable + context}, *wired]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": block} for block in (stable, context) if block]
    if stable:
        blocks[0]["cache_control"] = {"type": "ephemeral"}
    return [{"role": "system", "content": blocks}, *wired]


def wire_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Write tool definitions in the given order, which is part of the cached prefix."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def _ended(block: str) -> str:
    return "" if is_effectively_empty(block) else block.rstrip("\n") + "\n"


def _wire_message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    return {
        "role": message.role,
        "content": None if is_effectively_empty(message.content) else message.content,
        "tool_calls": [_wire_call(call) for call in message.tool_calls],
    }


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
