"""What a WhatsApp message says, in words.

Idea: each message type has one canonical text for the model, and keeps what a rule may look at. Invariant: an unknown
type, or a known one without its inner object, is ``unsupported``; only a wrong shape is an error. Tested in
``tests/unit/test_whatsapp.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zaia_cli.channels.reading import (
    PLACEHOLDERS,
    UNSUPPORTED_TEXT,
    items_at,
    mapping,
    media_text,
    optional_text,
    string,
)

__all__ = ["Content", "read_content"]


@dataclass(frozen=True, slots=True)
class Content:
    """Kind, canonical text and the fields that the content itself carries (``button_id``)."""

    kind: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)


def read_content(item: dict[str, Any]) -> Content:
    """Read the content of a message, an echo or the new version inside an edit.

    Args:
        item: The object that holds ``type`` and, under that name, the content.

    Returns:
        The content; kind ``unsupported`` for unknown types and for known ones without content.

    Raises:
        ValueError: The content has the wrong shape.

    Source:
        ``shared/facts/channels.md`` section 2.
    """
    kind = string(item, "type")
    reader = _READERS.get(kind)
    content = None if reader is None or item.get(kind) is None else reader(item)
    return content or Content("unsupported", UNSUPPORTED_TEXT)


def _text(item: dict[str, Any]) -> Content:
    return Content("text", string(mapping(item, "text"), "body"))


def _media(item: dict[str, Any]) -> Content:
    kind = item["type"]
    medium = mapping(item, kind)
    text = media_text(kind, optional_text(medium, "caption"))
    name = optional_text(medium, "filename")
    if name is not None and text == PLACEHOLDERS["document"]:
        text = f"{text[:-1]}: {name}]"
    return Content(kind, text)


def _location(item: dict[str, Any]) -> Content:
    place = mapping(item, "location")
    text = f"localização {_number(place, 'latitude')},{_number(place, 'longitude')}"
    named = [part for key in ("name", "address") if (part := optional_text(place, key))]
    return Content("location", f"{text} ({', '.join(named)})" if named else text)


def _contacts(item: dict[str, Any]) -> Content:
    shown = []
    for card in items_at(item, "contacts"):
        if not isinstance(card, dict):
            raise ValueError("contacts holds something else than objects")
        full_name = card.get("name")
        name = optional_text(full_name, "formatted_name") if isinstance(full_name, dict) else None
        phones = [
            phone
            for entry in items_at(card, "phones")
            if isinstance(entry, dict) and (phone := optional_text(entry, "phone") or optional_text(entry, "wa_id"))
        ]
        shown.append(" ".join([*([name] if name else []), *phones]))
    text = "; ".join(part for part in shown if part)
    return Content("contacts", f"contato: {text}" if text else PLACEHOLDERS["contacts"])


def _interactive(item: dict[str, Any]) -> Content | None:
    answer = mapping(item, "interactive")
    kind = answer.get("type")
    if kind not in ("button_reply", "list_reply") or answer.get(kind) is None:
        return None
    chosen = mapping(answer, kind)
    title, description = string(chosen, "title"), optional_text(chosen, "description")
    text = f"{title} — {description}" if description else title
    return Content("interactive", text, _button_id(chosen, "id"))


def _button(item: dict[str, Any]) -> Content:
    button = mapping(item, "button")
    return Content("button", string(button, "text"), _button_id(button, "payload"))


def _button_id(item: dict[str, Any], key: str) -> dict[str, Any]:
    value = item.get(key)
    return {"button_id": value} if isinstance(value, str) else {}


def _order(item: dict[str, Any]) -> Content:
    order = mapping(item, "order")
    lines = []
    for product in items_at(order, "product_items"):
        if not isinstance(product, dict):
            raise ValueError("product_items holds something else than objects")
        price = f"{string(product, 'currency')} {_number(product, 'item_price')}"
        lines.append(f"{_number(product, 'quantity')} x {string(product, 'product_retailer_id')} ({price})")
    note = optional_text(order, "text")
    text = f"pedido: {'; '.join(lines)}" if lines else "[pedido sem itens]"
    return Content("order", f"{text}\n{note}" if note else text)


def _number(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{key} is not a number")
    # Python refuses to write out an integer of thousands of digits.
    if isinstance(value, int) and abs(value) >= 10**15:
        raise ValueError(f"{key} is out of range")
    return str(value)


_READERS: dict[str, Callable[[dict[str, Any]], Content | None]] = {
    "text": _text,
    "image": _media,
    "video": _media,
    "audio": _media,
    "document": _media,
    "sticker": _media,
    "location": _location,
    "contacts": _contacts,
    "interactive": _interactive,
    "button": _button,
    "order": _order,
}
