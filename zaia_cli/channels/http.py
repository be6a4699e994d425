"""The generic HTTP request (a form, a call from another system), read into one event.

Idea: a strict shape, so that a misspelt key is an answer to the sender and not a silent loss. Invariant: ``parse``
returns exactly one event, a ``Message`` or a ``Rejected``, and never raises. Tested in
``tests/unit/test_http_intake.py``.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from zaia_cli.channels.reading import identifier, optional_text
from zaia_cli.core.inbound import Event, Message, Party, Rejected
from zaia_cli.core.phone import digits, match_keys
from zaia_cli.core.text import fold, is_effectively_empty

__all__ = ["parse"]

_CHANNEL: Final = "http"
_KEYS = ("id", "from", "name", "subject", "text", "fields", "at")
_PHONE = re.compile(r"[0-9+() -]+")
_PHONE_DIGITS = 10
_KEY_LIMIT = 300


class _UnreadableError(ValueError):
    """What is wrong, and under which key."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def parse(payload: object, account: str) -> list[Event]:
    """Read one request: ``{"id", "from", "name", "subject", "text", "fields", "at"}``.

    Args:
        payload: Parsed JSON of any shape; only ``from`` and one of ``text`` and ``fields`` are required.
        account: The account that it was sent to.

    Returns:
        One ``Message``, or one ``Rejected`` whose path is the key at fault.
    """
    try:
        if not isinstance(payload, dict):
            raise _UnreadableError("", "one JSON object is expected")
        return [_read(payload, account)]
    except _UnreadableError as error:
        return [Rejected(_CHANNEL, error.key, str(error), payload, account)]


def _read(payload: dict[Any, Any], account: str) -> Message:
    unknown = next((str(key) for key in payload if key not in _KEYS), None)
    if unknown is not None:
        raise _UnreadableError(unknown[:_KEY_LIMIT], f"unknown key {unknown[:_KEY_LIMIT]!r}")
    for key in ("name", "subject", "text"):
        if not isinstance(payload.get(key) or "", str):
            raise _UnreadableError(key, f"{key} is not a string")
    fields = payload.get("fields") or {}
    if not isinstance(fields, dict):
        raise _UnreadableError("fields", "fields is not an object")
    text = payload.get("text") or ""
    is_form = is_effectively_empty(text)
    if is_form and not fields:
        raise _UnreadableError("text", "text is empty and there are no fields")
    return Message(
        channel=_CHANNEL,
        account=account,
        provider_id=_id_of(payload),
        party=_party(payload),
        kind="form" if is_form else "text",
        text="\n".join(f"{name}: {_shown(value)}" for name, value in fields.items()) if is_form else text,
        sent_at=_moment(payload.get("at")),
        thread=_thread(payload.get("subject") or ""),
        fields=fields,
        raw=payload,
    )


def _thread(subject: str) -> str:
    # A half surrogate would be refused where the thread becomes part of a key.
    return "".join(filter(str.isprintable, fold(subject)))[:_KEY_LIMIT].strip()


def _id_of(payload: dict[str, Any]) -> str | None:
    value = payload.get("id")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    try:
        return identifier(payload, "id")
    except ValueError as error:
        raise _UnreadableError("id", str(error)) from None


def _party(payload: dict[str, Any]) -> Party:
    address = optional_text(payload, "from")
    if address is None:
        raise _UnreadableError("from", "from is missing or empty")
    if _PHONE.fullmatch(address) and len(digits(address)) >= _PHONE_DIGITS:
        aliases = tuple(f"phone:{form}" for form in match_keys(address))
    else:
        aliases = (f"http:{fold(address)}",)
    if any(len(alias) > _KEY_LIMIT or not alias.isprintable() for alias in aliases) or aliases == ("http:",):
        raise _UnreadableError("from", f"from is not an address of at most {_KEY_LIMIT} printable characters")
    return Party(address, aliases, optional_text(payload, "name"))


def _moment(value: object) -> datetime:
    if value is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _UnreadableError("at", "at is not an ISO time with an offset, such as 2026-01-31T09:00:00-03:00")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
