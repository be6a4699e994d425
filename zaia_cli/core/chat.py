"""What a model is asked and what it answers: plain data, and the port that adapters implement.

Idea: the turn loop, the adapters and the ledger share these types and nothing else. Invariant: no type of a model
library crosses this port; token buckets are disjoint, and unknown usage is ``None``, never zero. Tested in
``tests/unit/test_usage.py`` and, on real HTTP, in ``tests/models``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["ChatMessage", "ChatModel", "ModelReply", "ModelRequest", "ToolCall", "ToolSpec", "Usage"]

Role = Literal["user", "assistant", "tool"]
Finish = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model asked for.

    ``arguments`` is None when they could not be used (cut, malformed, not an object); then ``error`` says why in a
    short sentence for the model and the tool must not run. ``id`` is kept byte for byte: providers hide state in it.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of the history. A ``tool`` message answers ``tool_call_id``; an assistant may carry calls."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model request in disjoint buckets.

    ``input_tokens`` excludes both caches. ``cache_write_1h_tokens`` is the part of ``cache_write_tokens`` with the
    longer life; ``reasoning_tokens`` is the part of ``output_tokens`` that was thought. ``is_estimated`` marks counts
    that the provider did not report exactly.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    is_estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """All tokens that the request consumed."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model request.

    Args:
        model: Configured model id, ``provider/name`` or ``scripted/<name>``.
        stable: Instructions that are byte-identical over many calls; the cacheable prefix.
        context: What changes per request (date, contact); comes after ``stable``.
        messages: History, oldest first; every tool call is followed by exactly one result.
        tools: In a fixed order.
        max_tokens: Output limit, always explicit.
        temperature: None leaves the provider's default.
    """

    model: str
    stable: str
    messages: tuple[ChatMessage, ...]
    context: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 1024
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One model answer. ``usage`` is None when the provider did not say."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    provider_model: str | None = None
    latency_ms: int = 0
    raw_usage: Mapping[str, Any] = field(default_factory=dict)


class ChatModel(Protocol):
    """One request, one HTTP exchange: retries and fallbacks belong to the turn loop, which owns the deadline."""

    async def complete(self, request: ModelRequest, *, timeout_s: float) -> ModelReply:
        """Ask the model once.

        Args:
            request: What to ask.
            timeout_s: Total seconds for the whole exchange, connection and drip included.

        Raises:
            ModelError: Whatever went wrong, classified; never an exception of the model library.
        """
        ...
