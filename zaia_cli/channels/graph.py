"""What the Graph API is sent and what its answers mean.

Idea: pure functions between our words and Meta's JSON. Invariant: ``accepted`` needs a 2xx with a message id and
``refused`` needs Meta's own error body; everything else is ``unknown``. Tested in ``tests/channels/test_sending.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from zaia_cli.channels.error_codes import classify
from zaia_cli.core.outbound import OutboundPart, SendResult
from zaia_cli.core.text import shorten

__all__ = ["instagram_payload", "parsed", "read_answer", "retry_after_s", "typing_payload", "whatsapp_payload"]

_ERROR_CHARACTERS = 200
_USER_ID = re.compile(r"[A-Za-z]+\.")
_LONG_NUMBER = re.compile(r"\d{8,}")


def whatsapp_payload(part: OutboundPart) -> dict[str, Any]:
    """Make a free text message; ``shared/facts/channels.md`` sections 3 and 5.

    A business-scoped user id goes into ``recipient``: in ``to`` it is dropped silently.
    """
    payload: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "recipient" if _USER_ID.match(part.address) else "to": part.address,
        "type": "text",
        "text": {"preview_url": False, "body": part.text},
        "biz_opaque_callback_data": part.opaque_id,
    }
    if part.reply_to:
        payload["context"] = {"message_id": part.reply_to}
    return payload


def typing_payload(message_id: str) -> dict[str, Any]:
    """Mark an inbound message read and show that an answer is being written."""
    return {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": message_id,
        "typing_indicator": {"type": "text"},
    }


def instagram_payload(part: OutboundPart) -> dict[str, Any]:
    """Make a free text message; ``shared/facts/channels.md`` section 7."""
    return {"recipient": {"id": part.address}, "message": {"text": part.text}}


def read_answer(channel: str, part: OutboundPart, status: int, headers: Mapping[str, str], body: bytes) -> SendResult:
    """Say how a send ended.

    Args:
        channel: ``whatsapp`` or ``instagram``.
        part: What was sent; its address and text are kept out of the error.
        status: HTTP status.
        headers: Case-insensitive.
        body: The answer as received.
    """
    document = parsed(body)
    error = document.get("error")
    if status >= 400 and isinstance(error, dict) and _is_number(error.get("code")):
        code, subcode = error["code"], error.get("error_subcode")
        if not _is_number(subcode):
            subcode = None
        is_transient = error.get("is_transient") is True or status >= 500
        return SendResult(
            "refused",
            error_class=classify(channel, code, subcode, is_transient),
            error_code=str(code) if subcode is None else f"{code}/{subcode}",
            error=_without_customer(str(error.get("message") or ""), part),
            retry_after_s=retry_after_s(headers),
        )
    message_id = _message_id(channel, document)
    if 200 <= status < 300 and message_id:
        return SendResult("accepted", provider_message_id=message_id)
    return SendResult("unknown", error=f"HTTP {status} without {'an id' if status < 400 else 'an error body'}")


def parsed(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; anything else is an empty one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After``: seconds from now, from a number or a date; None when absent or unreadable."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, IndexError):
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _message_id(channel: str, document: Mapping[str, Any]) -> str | None:
    found = document.get("message_id")
    if channel == "whatsapp":
        messages = document.get("messages")
        first = messages[0] if isinstance(messages, list) and messages else None
        found = first.get("id") if isinstance(first, dict) else None
    return found if isinstance(found, str) and found else None


def _without_customer(message: str, part: OutboundPart) -> str:
    for known in (part.text, part.address):
        message = message.replace(known, "…") if known.strip() else message
    return shorten(_LONG_NUMBER.sub("…", message), _ERROR_CHARACTERS)
