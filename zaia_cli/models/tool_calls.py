"""Tool calls as providers send them, made safe to store, run and replay.

Idea: arguments come as an object, a string, a string in a string, a fenced block, empty or cut; all become an object
or a short sentence for the model. Invariant: a tool never runs with guessed arguments, ids are unique in the
conversation, and an id that a provider gave is kept byte for byte. Tested in ``tests/models/test_tool_calls.py``.

Source: ``shared/facts/providers.md`` section 5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from zaia_cli.core.chat import ToolCall

__all__ = ["RawCall", "normalised_calls", "parse_arguments", "storable"]

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n?(.*?)\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_CUT = "The answer was cut before the arguments were complete. Call the tool again with shorter arguments."
_MALFORMED = "The arguments are not valid JSON. Call the tool again with one JSON object."
_NOT_OBJECT = "The arguments must be one JSON object. Call the tool again."
_NAMELESS = "The call names no tool. Call one of the tools by its name."


@dataclass(frozen=True, slots=True)
class RawCall:
    """One call before it is trusted; ``arguments`` is whatever the provider sent."""

    id: str | None
    name: str | None
    arguments: object


def normalised_calls(raw_calls: Iterable[RawCall], *, is_cut: bool, taken_ids: Iterable[str] = ()) -> list[ToolCall]:
    """Turn raw calls into calls that are safe to store and run, in the order given.

    Calls with the same tool and arguments become one: some providers merge them on replay and then miss a result.

    Args:
        raw_calls: What the provider sent.
        is_cut: The answer ended at the output limit; then no call may run, because any of them may be incomplete.
        taken_ids: Ids already used in this conversation; a repeated id is replaced.
    """
    ids = set(taken_ids)
    seen: set[tuple[str, str]] = set()
    calls: list[ToolCall] = []
    for raw in raw_calls:
        arguments, error = (None, _CUT) if is_cut else parse_arguments(raw.arguments)
        if not raw.name:
            arguments, error = None, _NAMELESS
        name = raw.name or "unnamed"
        if arguments is not None:
            key = (name, json.dumps(arguments, sort_keys=True))
            if key in seen:
                continue
            seen.add(key)
        call_id = raw.id if raw.id and raw.id not in ids else f"call_{uuid4().hex}"
        ids.add(call_id)
        calls.append(ToolCall(call_id, name, arguments, error))
    return calls


def parse_arguments(raw: object) -> tuple[dict[str, Any] | None, str | None]:
    """Read the arguments of a call.

    Returns:
        The object and None, or None and one sentence for the model. Nothing at all means no arguments: ``{}``.
    """
    value = raw
    for _ in range(2):
        if not isinstance(value, str):
            break
        if not value.strip():
            return {}, None
        fenced = _FENCE.match(value)
        try:
            value = json.loads(fenced.group(1) if fenced else value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return None, _MALFORMED
    if value is None:
        return {}, None
    if not isinstance(value, Mapping):
        return None, _NOT_OBJECT
    return {str(key): storable(item) for key, item in value.items()}, None


def storable(value: Any) -> Any:
    """Drop what PostgreSQL cannot store from every string inside ``value``: NUL and half surrogates."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "ignore").decode("utf-8")
    if isinstance(value, Mapping):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
