"""WhatsApp Cloud API webhooks, read into events.

Idea: walk every entry, change, message and status; routing is by ``metadata.phone_number_id``, never by the entry.
Invariant: ``parse`` never raises; one malformed item becomes ``Rejected`` with its path and its neighbours go on.
Tested in ``tests/unit/test_whatsapp.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from zaia_cli.channels.reading import (
    identifier,
    instant,
    items_at,
    mapping,
    optional_identifier,
    optional_text,
    string,
)
from zaia_cli.channels.whatsapp_content import read_content
from zaia_cli.core.inbound import (
    ContactMoved,
    DeliveryStatus,
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
from zaia_cli.core.phone import match_keys
from zaia_cli.core.text import is_effectively_empty

__all__ = ["parse"]

_CHANNEL: Final = "whatsapp"
_PHONE = re.compile(r"\+?[0-9]{5,20}", re.ASCII)
_STATUSES: dict[str, DeliveryStatus] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}

_Contacts = dict[str, dict[str, Any]]


def parse(payload: object) -> list[Event]:
    """Read one webhook payload.

    Args:
        payload: Parsed JSON of any shape.

    Returns:
        Events in the payload's order; per change messages first, then statuses, then echoes.

    Source:
        ``shared/facts/channels.md`` sections 1, 2, 4 and 5.
    """
    if not isinstance(payload, dict) or payload.get("object") != "whatsapp_business_account":
        return [Rejected(_CHANNEL, "object", "object is not whatsapp_business_account", payload)]
    events: list[Event] = []
    for entry, path in _objects(payload, "entry", "", events):
        for change, change_path in _objects(entry, "changes", f"{path}.", events):
            events.extend(_read_change(change, change_path))
    return events


def _objects(
    item: dict[str, Any], key: str, prefix: str, out: list[Event], account: str | None = None
) -> Iterator[tuple[dict[str, Any], str]]:
    """Walk the objects of a list with their paths; anything else goes to ``out`` as rejected."""
    values = item.get(key)
    if not isinstance(values, list):
        out.append(Rejected(_CHANNEL, f"{prefix}{key}", f"{key} is not a list", item, account))
        return
    for index, value in enumerate(values):
        path = f"{prefix}{key}[{index}]"
        if isinstance(value, dict):
            yield value, path
        else:
            out.append(Rejected(_CHANNEL, path, "not an object", value, account))


def _read_change(change: dict[str, Any], path: str) -> list[Event]:
    field, value = change.get("field"), change.get("value")
    if not isinstance(field, str):
        return [Rejected(_CHANNEL, f"{path}.field", "field is not a string", change)]
    if field not in ("messages", "smb_message_echoes"):
        return [Ignored(_CHANNEL, field)]
    try:
        if not isinstance(value, dict):
            raise ValueError("value is not an object")
        account = identifier(mapping(value, "metadata"), "phone_number_id")
    except ValueError as error:
        return [Rejected(_CHANNEL, f"{path}.value", str(error), change)]
    contacts = _contacts_by_alias(value.get("contacts"))
    readers: dict[str, Callable[[dict[str, Any]], Event]] = {
        "messages": lambda item: _read_message(item, account, contacts),
        "statuses": lambda item: _read_status(item, account),
        "message_echoes": lambda item: _read_echo(item, account, contacts),
    }
    present = [key for key in readers if value.get(key) is not None]
    if not present:
        return [Ignored(_CHANNEL, f"{field} without items")]
    events: list[Event] = []
    for key in present:
        for item, item_path in _objects(value, key, f"{path}.value.", events, account):
            try:
                events.append(readers[key](item))
            except ValueError as error:
                events.append(Rejected(_CHANNEL, item_path, str(error), item, account))
    return events


def _read_message(item: dict[str, Any], account: str, contacts: _Contacts) -> Event:
    kind = string(item, "type")
    if kind == "system":
        return _read_system(item, account, contacts)
    provider_id, sent_at = identifier(item, "id"), instant(item, unit_ms=1000)
    party = _party(item, "from", contacts)
    if kind == "reaction":
        reaction = mapping(item, "reaction")
        emoji = optional_text(reaction, "emoji")
        target = identifier(reaction, "message_id")
        return Reaction(_CHANNEL, account, provider_id, target, party, emoji, sent_at, item)
    if kind == "revoke":
        original = identifier(mapping(item, "revoke"), "original_message_id")
        return MessageRevoke(_CHANNEL, account, provider_id, original, party, sent_at, item)
    if kind == "edit":
        edit = mapping(item, "edit")
        original, content = identifier(edit, "original_message_id"), read_content(mapping(edit, "message"))
        return MessageEdit(_CHANNEL, account, provider_id, original, party, content.kind, content.text, sent_at, item)
    content = read_content(item)
    fields = content.fields | _circumstances(item)
    is_answerable = content.kind != "unsupported" and "group_id" not in fields
    context = item.get("context")
    return Message(
        channel=_CHANNEL,
        account=account,
        provider_id=provider_id,
        party=party,
        kind=content.kind,
        text=content.text,
        sent_at=sent_at,
        starts_turn=is_answerable and not is_effectively_empty(content.text),
        reply_to=optional_identifier(context, "id") if isinstance(context, dict) else None,
        fields=fields,
        raw=item,
    )


def _circumstances(item: dict[str, Any]) -> dict[str, Any]:
    """What surrounds a message and rules may look at: advertisement, product, forwarding, group."""
    found: dict[str, Any] = {}
    context = item.get("context")
    if isinstance(context, dict):
        if context.get("forwarded") is True or context.get("frequently_forwarded") is True:
            found["forwarded"] = True
        if isinstance(context.get("referred_product"), dict):
            found["referred_product"] = context["referred_product"]
    if isinstance(item.get("referral"), dict):
        found["referral"] = item["referral"]
    if item.get("group_id") is not None:
        found["group_id"] = item["group_id"]
    return found


def _read_system(item: dict[str, Any], account: str, contacts: _Contacts) -> Event:
    system = mapping(item, "system")
    kind = string(system, "type")
    if kind != "user_changed_number":
        return Ignored(_CHANNEL, f"system {kind}")
    old, new = _party(item, "from", contacts), _party({"from": system.get("wa_id")}, "from", contacts)
    return ContactMoved(_CHANNEL, account, identifier(item, "id"), old, new, instant(item, unit_ms=1000), item)


def _read_echo(item: dict[str, Any], account: str, contacts: _Contacts) -> Event:
    kind = string(item, "type")
    if kind in ("edit", "revoke", "reaction", "system"):
        return Ignored(_CHANNEL, f"echo {kind}")
    party, content = _party(item, "to", contacts), read_content(item)
    return Echo(_CHANNEL, account, identifier(item, "id"), party, content.text, instant(item, unit_ms=1000), item)


def _read_status(item: dict[str, Any], account: str) -> Event:
    kind = string(item, "status")
    if kind not in _STATUSES:
        return Ignored(_CHANNEL, f"status {kind}")
    code, reason = _error_of(item)
    return StatusUpdate(
        channel=_CHANNEL,
        account=account,
        provider_message_id=identifier(item, "id"),
        status=_STATUSES[kind],
        at=instant(item, unit_ms=1000),
        opaque_id=optional_identifier(item, "biz_opaque_callback_data"),
        error_code=code,
        error=reason,
        raw=item,
    )


def _error_of(item: dict[str, Any]) -> tuple[int | None, str | None]:
    errors = items_at(item, "errors")
    if not errors or not isinstance(errors[0], dict):
        return None, None
    first = errors[0]
    code, data = first.get("code"), first.get("error_data")
    details = optional_text(data, "details") if isinstance(data, dict) else None
    said = [part for part in (optional_text(first, "title") or optional_text(first, "message"), details) if part]
    is_code = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31
    return code if is_code else None, ": ".join(said) or None


def _party(item: dict[str, Any], key: str, contacts: _Contacts) -> Party:
    """Read the customer named by ``key`` (a phone) and ``<key>_user_id``, one of which may be missing.

    Raises:
        ValueError: Neither is there, or the phone is not one.
    """
    phone, user_id = item.get(key) or None, optional_identifier(item, f"{key}_user_id")
    contact = next((contacts[alias] for alias in _aliases(phone, user_id) if alias in contacts), {})
    if phone is None:
        phone = contact.get("wa_id") or None
    if user_id is None:
        user_id = optional_identifier(contact, "user_id")
    if phone is not None and not (isinstance(phone, str) and _PHONE.fullmatch(phone)):
        raise ValueError(f"{key} is not a phone number")
    aliases = _aliases(phone, user_id)
    if not aliases:
        raise ValueError(f"neither {key} nor {key}_user_id")
    profile = contact.get("profile")
    name = optional_text(profile, "name") if isinstance(profile, dict) else None
    return Party(phone if phone is not None else str(user_id), aliases, name)


def _aliases(phone: object, user_id: str | None) -> tuple[str, ...]:
    forms = match_keys(phone) if isinstance(phone, str) and _PHONE.fullmatch(phone) else ()
    return (*(f"phone:{form}" for form in forms), *((f"bsuid:{user_id}",) if user_id is not None else ()))


def _contacts_by_alias(listed: object) -> _Contacts:
    """Index the contacts of a change, which may be as many as its messages; the first of an alias wins."""
    found: _Contacts = {}
    for contact in listed if isinstance(listed, list) else ():
        if isinstance(contact, dict):
            for alias in _aliases(contact.get("wa_id"), optional_identifier(contact, "user_id")):
                found.setdefault(alias, contact)
    return found
