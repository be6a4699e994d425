"""What a provider's error means: slow down, try again, pay, fix the key, or fix the request.

Idea: the true HTTP status and the provider's own code decide; prose decides only where providers have nothing else,
and then only when it opens the message. Invariant: words of a customer that a provider echoes never change the class,
and no traceback, path, key or quoted sentence gets into a ``ModelError``. Tested in
``tests/models/test_provider_errors.py`` and ``tests/models/test_provider_cases.py``.

Source: ``shared/facts/providers.md`` sections 1.1 to 1.3.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from zaia_cli.core.errors import ModelError, ModelErrorKind
from zaia_cli.core.text import shorten

__all__ = ["http_error"]

_MESSAGE_LIMIT = 300
_MONEY_CODES = frozenset(
    {"insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
)
_MONEY_TEXT = re.compile(
    r"your credit balance is too low|you have reached your specified api usage limits", re.IGNORECASE
)
_QUOTA_TEXT = re.compile(r"you exceeded your current quota", re.IGNORECASE)
_ZERO_LIMIT = re.compile(r"\blimit: 0\b(?![.\d])")
_KEY_TEXT = re.compile(r"api key not valid", re.IGNORECASE)
_POLICY_CODES = frozenset({"content_policy_violation", "content_filter", "responsibleaipolicyviolation"})
_POLICY_TEXT = re.compile(r"content filtering policy|safety system|content management policy", re.IGNORECASE)
_LENGTH_CODES = frozenset({"context_length_exceeded", "string_above_max_length", "request_too_large"})
_LENGTH_TEXT = re.compile(
    r"maximum context length|prompt is too long|exceeds? the (?:maximum|limit)[^.]* tokens|context window",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""(?<!\w)(["'`])(.*?)\1(?!\w)""", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][\w./:-]{0,60}\Z")
_SECRET = re.compile(r"\b(?:sk|pk|key|AIza)[-_]?[\w*-]{12,}")
_RETRY_TEXT = re.compile(r"(?:retry|try again) in ((?:[\d.]+\s*(?:ms|h|m|s)\s*)+)", re.IGNORECASE)
_DURATION = re.compile(r"([\d.]+)\s*(ms|h|m|s)", re.IGNORECASE)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class _Body:
    """The parts of an error body that providers agree on."""

    message: str
    codes: tuple[str, ...]
    details: tuple[Mapping[str, Any], ...]


def http_error(status: int, headers: Mapping[str, str], text: str) -> ModelError:
    """Classify an error answer.

    Args:
        status: The true HTTP status, as sent by the server.
        headers: Response headers with lower-case names.
        text: The response body.
    """
    body = _read_body(text)
    return ModelError(
        _kind(status, body),
        _shown(body.message) or f"HTTP {status} without a message",
        status=status,
        provider_code=next((shorten(code, 100) for code in body.codes if not code.isdigit()), None),
        retry_after_s=_retry_after_s(headers, body),
    )


def _kind(status: int, body: _Body) -> ModelErrorKind:
    codes = {code.lower() for code in body.codes}
    if status == 402 or (status in (400, 403, 429) and codes & _MONEY_CODES):
        return "payment"
    if status in (400, 403, 429) and _MONEY_TEXT.match(body.message):
        return "payment"
    if status == 401:
        return "unauthorized"
    if status == 429:
        return "payment" if "resource_exhausted" in codes and _is_spent_for_long(body) else "rate_limit"
    if status in (400, 403) and _QUOTA_TEXT.match(body.message):
        return "payment"
    if status == 403:
        return "forbidden"
    if status in (408, 409, 425) or status >= 500 or status < 400:
        return "transient"
    return _request_kind(codes, body)


def _request_kind(codes: set[str], body: _Body) -> ModelErrorKind:
    own_words = _QUOTED.sub("", body.message)
    if "api_key_invalid" in codes or _KEY_TEXT.match(own_words):
        return "unauthorized"
    if codes & _LENGTH_CODES or _LENGTH_TEXT.search(own_words):
        return "context_length"
    if codes & _POLICY_CODES or _POLICY_TEXT.search(own_words):
        return "content_policy"
    return "bad_request"


def _is_spent_for_long(body: _Body) -> bool:
    """Whether a Gemini quota is a daily one or zero: its words and its retry hint are those of a per-minute limit."""
    listed = [item for detail in body.details for item in detail.get("violations") or ()]
    violations = [item for item in listed if isinstance(item, Mapping)]
    is_daily = any("perday" in str(violation.get("quotaId", "")).lower() for violation in violations)
    return is_daily or _ZERO_LIMIT.search(body.message) is not None


def _read_body(text: str) -> _Body:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _Body("", (), ())
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, Mapping):
        return _Body("", (), ())
    error = document.get("error")
    if isinstance(error, Mapping):
        return _merged(error)
    if isinstance(error, str):
        return _Body(str(document.get("message") or error), (), ())
    return _merged(document)


def _merged(error: Mapping[str, Any]) -> _Body:
    """Read one error object, and the one that a gateway wraps in it."""
    raw_details = error.get("details")
    details = tuple(d for d in raw_details if isinstance(d, Mapping)) if isinstance(raw_details, list) else ()
    codes = [str(error[key]) for key in ("code", "type", "status") if isinstance(error.get(key), str | int)]
    codes += [str(detail["reason"]) for detail in details if "reason" in detail]
    message = error["message"] if isinstance(error.get("message"), str) else ""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if not isinstance(raw, str):
        return _Body(message, tuple(codes), details)
    inner = _read_body(raw)
    return _Body(inner.message or raw, (*codes, *inner.codes), details + inner.details)


def _shown(message: str) -> str:
    """Keep the provider's own words and quoted identifiers; quoted sentences may be a customer's."""
    kept = _QUOTED.sub(lambda m: m.group(0) if _IDENTIFIER.match(m.group(2)) else f"{m[1]}…{m[1]}", message)
    return shorten(_SECRET.sub("…", kept), _MESSAGE_LIMIT)


def _retry_after_s(headers: Mapping[str, str], body: _Body) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if name in headers:
            seconds = _number(headers[name])
            return seconds * unit_s if seconds is not None else _until(headers[name])
    for detail in body.details:
        if "retryDelay" in detail:
            return _duration_s(str(detail["retryDelay"]))
    hint = _RETRY_TEXT.search(body.message)
    return _duration_s(hint.group(1)) if hint else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(text: str) -> float | None:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)


def _duration_s(text: str) -> float | None:
    parts = [(_number(amount), unit.lower()) for amount, unit in _DURATION.findall(text)]
    known = [amount * _UNIT_S[unit] for amount, unit in parts if amount is not None]
    return sum(known) if known else None
