"""Instagram messaging webhooks, read into events.

Idea: one item of ``messaging`` is one event; sender and recipient swap on what the business itself sent. Invariant:
``parse`` never raises; one malformed item becomes ``Rejected`` with its path and its neighbours go on. Tested in
``tests/unit/test_instagram.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zaia_cli.channels.reading import (
    PLACEHOLDERS,
    UNSUPPORTED_TEXT,
    identifier,
    instant,
    items_at,
    mapping,
    optional_identifier,
    optional_text,
    string,
)
from zaia_cli.core.inbound import (
    Echo,
    Event,
    Ignored,
    Message,
    MessageEdit,
    MessageRevoke,
    Party,
    Reaction,
    Rejected,
    StatusUpdate,
)
from zaia_cli.core.text import is_effectively_empty

__all__ = ["parse"]

_CHANNEL: Final = "instagram"
_ATTACHMENTS = {
    "image": "image",
    "video": "video",
    "audio": "audio",
    "file": "document",
    "share": "share",
    "ig_post": "share",
    "ig_reel": "share",
    "reel": "share",
    "story_mention": "story_mention",
}


def parse(payload: object) -> list[Event]:
    """Read one webhook payload, which may be wrapped in a list.

    Args:
        payload: Parsed JSON of any shape.

    Returns:
        Events in the payload's order.

    Source:
        ``shared/facts/channels.md`` section 7.
    """
    events: list[Event] = []
    is_wrapped = isinstance(payload, list)
    for index, body in enumerate(payload if isinstance(payload, list) else [payload]):
        prefix = f"[{index}]." if is_wrapped else ""
        if not isinstance(body, dict) or body.get("object") != "instagram":
            events.append(Rejected(_CHANNEL, f"{prefix}object", "object is not instagram", body))
            continue
        entries = body.get("entry")
        if not isinstance(entries, list):
            events.append(Rejected(_CHANNEL, f"{prefix}entry", "entry is not a list", body))
            continue
        for number, entry in enumerate(entries):
            events.extend(_read_entry(entry, f"{prefix}entry[{number}]"))
    return events


def _read_entry(entry: Any, path: str) -> list[Event]:
    try:
        if not isinstance(entry, dict):
            raise ValueError("not an object")
        account = identifier(entry, "id")
        items = items_at(entry, "messaging")
    except ValueError as error:
        return [Rejected(_CHANNEL, path, str(error), entry)]
    if "messaging" not in entry:
        kind = next((key for key in entry if key not in ("id", "time")), "entry without items")
        return [Ignored(_CHANNEL, kind)]
    events: list[Event] = []
    for index, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise ValueError("not an object")
            events.append(_read_item(item, account))
        except ValueError as error:
            events.append(Rejected(_CHANNEL, f"{path}.messaging[{index}]", str(error), item, account))
    return events


def _read_item(item: dict[str, Any], account: str) -> Event:
    kind = next((key for key in _READERS if item.get(key) is not None), None)
    if kind is None:
        known = (key for key in item if key not in ("sender", "recipient", "timestamp"))
        return Ignored(_CHANNEL, next(known, "item without content"))
    sender = identifier(mapping(item, "sender"), "id")
    content = mapping(item, kind)
    is_own = content.get("is_echo") is True or sender == account
    if is_own and (kind != "message" or content.get("is_deleted") is True or content.get("is_self") is True):
        return Ignored(_CHANNEL, f"own {kind}")
    return _READERS[kind](item, account, is_own)


def _party(item: dict[str, Any], key: str = "sender") -> Party:
    scoped_id = identifier(mapping(item, key), "id")
    return Party(scoped_id, (f"instagram:{scoped_id}",))


def _read_message(item: dict[str, Any], account: str, is_own: bool) -> Event:
    message, sent_at = mapping(item, "message"), instant(item, unit_ms=1)
    mid = identifier(message, "mid")
    if message.get("is_deleted") is True:
        return MessageRevoke(_CHANNEL, account, mid, mid, _party(item), sent_at, item)
    kind, text = _content_of(message)
    if is_own:
        return Echo(_CHANNEL, account, mid, _party(item, "recipient"), text, sent_at, item)
    reply_to = message.get("reply_to")
    return Message(
        channel=_CHANNEL,
        account=account,
        provider_id=mid,
        party=_party(item),
        kind=kind,
        text=text,
        sent_at=sent_at,
        starts_turn=kind != "unsupported" and not is_effectively_empty(text),
        reply_to=optional_identifier(reply_to, "mid") if isinstance(reply_to, dict) else None,
        fields=_fields_of(message),
        raw=item,
    )


def _content_of(message: dict[str, Any]) -> tuple[str, str]:
    attachments = [entry for entry in items_at(message, "attachments") if isinstance(entry, dict)]
    kinds = [_ATTACHMENTS[name] for entry in attachments if (name := _type_of(entry)) in _ATTACHMENTS]
    text = message.get("text")
    if text is not None and not isinstance(text, str):
        raise ValueError("text is not a string")
    if message.get("is_unsupported") is True or (text is None and not kinds):
        return "unsupported", UNSUPPORTED_TEXT
    if text is not None and not (kinds and is_effectively_empty(text)):
        return kinds[0] if kinds else "text", text
    return kinds[0], "\n".join(PLACEHOLDERS[kind] for kind in kinds)


def _type_of(attachment: dict[str, Any]) -> str:
    name = attachment.get("type")
    return name if isinstance(name, str) else ""


def _fields_of(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    quick_reply, reply_to = message.get("quick_reply"), message.get("reply_to")
    if isinstance(quick_reply, dict) and isinstance(quick_reply.get("payload"), str):
        found["button_id"] = quick_reply["payload"]
    if isinstance(message.get("referral"), dict):
        found["referral"] = message["referral"]
    if isinstance(reply_to, dict) and isinstance(reply_to.get("story"), dict):
        found["story"] = reply_to["story"]
    return found


def _read_edit(item: dict[str, Any], account: str, _is_own: bool) -> Event:
    edit, sent_at = mapping(item, "message_edit"), instant(item, unit_ms=1)
    mid, number = identifier(edit, "mid"), edit.get("num_edit")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 10**6:
        raise ValueError("num_edit is not a small whole number")
    return MessageEdit(
        _CHANNEL, account, f"{mid}:{number}", mid, _party(item), "text", string(edit, "text"), sent_at, item
    )


def _read_reaction(item: dict[str, Any], account: str, _is_own: bool) -> Event:
    reaction, sent_at = mapping(item, "reaction"), instant(item, unit_ms=1)
    mid, action = identifier(reaction, "mid"), string(reaction, "action")
    if action not in ("react", "unreact"):
        raise ValueError("action is neither react nor unreact")
    emoji = optional_text(reaction, "emoji") or optional_text(reaction, "reaction") if action == "react" else None
    provider_id = f"{mid}:{action}:{item['timestamp']}"
    return Reaction(_CHANNEL, account, provider_id, mid, _party(item), emoji, sent_at, item)


def _read_read(item: dict[str, Any], account: str, _is_own: bool) -> Event:
    mid = identifier(mapping(item, "read"), "mid")
    return StatusUpdate(_CHANNEL, account, mid, "read", instant(item, unit_ms=1), raw=item)


def _read_postback(item: dict[str, Any], account: str, _is_own: bool) -> Event:
    postback = mapping(item, "postback")
    title, payload = string(postback, "title"), postback.get("payload")
    fields: dict[str, Any] = {"button_id": payload} if isinstance(payload, str) else {}
    if isinstance(postback.get("referral"), dict):
        fields["referral"] = postback["referral"]
    return Message(
        channel=_CHANNEL,
        account=account,
        provider_id=identifier(postback, "mid"),
        party=_party(item),
        kind="postback",
        text=title,
        sent_at=instant(item, unit_ms=1),
        starts_turn=not is_effectively_empty(title),
        fields=fields,
        raw=item,
    )


_READERS: dict[str, Callable[[dict[str, Any], str, bool], Event]] = {
    "message": _read_message,
    "message_edit": _read_edit,
    "reaction": _read_reaction,
    "read": _read_read,
    "postback": _read_postback,
}
