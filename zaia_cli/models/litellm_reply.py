"""What litellm returned or raised, turned into the types of the port.

Idea: read the answer and the chain of exceptions without trusting either. Invariant: the status of an error is the
one the server sent, and no text of litellm's own exceptions gets out. Tested in
``tests/models/test_provider_cases.py`` and ``tests/models/test_litellm_model.py``.

Source: ``shared/facts/providers.md`` sections 1, 3 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zaia_cli.core.chat import Finish, ModelReply, ModelRequest
from zaia_cli.core.errors import ModelError, ModelErrorKind, ZaiaError
from zaia_cli.models.provider_errors import http_error
from zaia_cli.models.tool_calls import RawCall, normalised_calls, storable
from zaia_cli.models.usage import normalised_usage

__all__ = ["model_error", "model_reply", "without_thinking"]

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL | re.IGNORECASE)
_UNOPENED_THOUGHT = re.compile(r"\A.*</think(?:ing)?>\s*", re.DOTALL | re.IGNORECASE)
_UNCLOSED_THOUGHT = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_UNREADABLE = "The provider's answer could not be read"


def model_reply(request: ModelRequest, response: Any, latency_ms: int) -> ModelReply:
    """Read a litellm response.

    Raises:
        ModelError: ``transient`` when the answer has no choices; carries the usage that was billed.
    """
    raw_usage = _plain(getattr(response, "usage", None))
    usage = normalised_usage(raw_usage, is_estimated=request.model.startswith("ollama_chat/"))
    choices = getattr(response, "choices", None)
    if not choices:
        raise ModelError("transient", f"{_UNREADABLE}: it has no choices.", usage=usage)
    message = choices[0].message
    finish = _FINISHES.get(str(choices[0].finish_reason), "other")
    taken = {call.id for earlier in request.messages for call in earlier.tool_calls}
    calls = normalised_calls(_raw_calls(message), is_cut=finish == "length", taken_ids=taken)
    text = without_thinking(_text(message.content))
    if calls and finish == "stop":
        finish = "tool_calls"
    if not calls and not text and getattr(message, "refusal", None):
        finish = "content_filter"
    tier = getattr(response, "service_tier", None)
    return ModelReply(
        text=str(storable(text)),
        tool_calls=tuple(calls),
        finish=finish,
        usage=usage,
        provider_model=getattr(response, "model", None),
        latency_ms=latency_ms,
        raw_usage={**raw_usage, "service_tier": tier} if isinstance(tier, str) else raw_usage,
    )


def model_error(raised: BaseException) -> ModelError:
    """Classify what litellm raised, by the true HTTP status where the server answered with an error."""
    headers = _headers(getattr(raised, "litellm_response_headers", None))
    chain = list(_chain(raised))
    for link in chain:
        if type(link).__name__ == "HTTPStatusError":
            response: Any = getattr(link, "response", None)
            return http_error(response.status_code, headers | _headers(response.headers), _body(response))
    names = {base.__name__ for link in chain for base in type(link).__mro__}
    name = type(raised).__name__
    # Only what litellm raised by itself is about the request; a class in front of a cause is its guess at an answer.
    own = {base.__name__ for base in type(raised).__mro__} if len(chain) == 1 else set()
    kind: ModelErrorKind = "transient"
    if names & {"Timeout", "APITimeoutError", "TimeoutException"}:
        kind, text = "timeout", "The provider did not answer in time"
    elif "AuthenticationError" in own:
        kind, text = "unauthorized", "The model library refused the request: there is no key"
    elif own & {"BadRequestError", "NotFoundError"}:
        kind, text = "bad_request", "The model library refused the request: provider, model or parameter is unknown"
    elif "ConnectError" in names:
        text = "No connection to the provider"
    else:
        text = _UNREADABLE
    return ModelError(kind, f"{text} ({name}).")


def without_thinking(text: str) -> str:
    """Drop what a reasoning model thought aloud, also when the block is cut or its opening is missing."""
    for pattern in (_THOUGHT, _UNOPENED_THOUGHT, _UNCLOSED_THOUGHT):
        text = pattern.sub("", text)
    return text.strip()


def _chain(raised: BaseException) -> Iterator[BaseException]:
    """Walk ``__context__`` inward; an error of ours means that an earlier failure begins."""
    seen: set[int] = set()
    link: BaseException | None = raised
    while link is not None and id(link) not in seen and not isinstance(link, ZaiaError):
        seen.add(id(link))
        yield link
        link = link.__context__


def _headers(raw: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in raw.items()} if hasattr(raw, "items") else {}


def _body(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:
        return ""


def _text(content: object) -> str:
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _raw_calls(message: Any) -> list[RawCall]:
    calls = [
        RawCall(call.id, call.function.name, call.function.arguments)
        for call in getattr(message, "tool_calls", None) or ()
        if getattr(call, "function", None) is not None
    ]
    legacy = getattr(message, "function_call", None)
    if not calls and legacy is not None:
        calls.append(RawCall(None, legacy.name, legacy.arguments))
    return calls


def _plain(usage: Any) -> dict[str, Any]:
    if usage is None or not hasattr(usage, "model_dump"):
        return {}
    dumped: dict[str, Any] = usage.model_dump(mode="json", exclude_none=True)
    return dumped
