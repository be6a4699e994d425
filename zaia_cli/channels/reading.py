"""Reading items of payloads that anybody may have written: typed access, and the words for what has no words.

Idea: an item is read key by key; what is missing or of the wrong type is a ``ValueError`` whose text says so, and the
parser turns it into one ``Rejected``. Invariant: an identifier that comes out fits an index and is stored unchanged.
Tested in ``tests/unit/test_whatsapp.py`` and ``test_instagram.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from zaia_cli.core.text import is_effectively_empty

__all__ = [
    "PLACEHOLDERS",
    "UNSUPPORTED_TEXT",
    "identifier",
    "instant",
    "items_at",
    "mapping",
    "media_text",
    "optional_identifier",
    "optional_text",
    "string",
]

UNSUPPORTED_TEXT = "[mensagem não suportada]"
PLACEHOLDERS = {
    "image": "[imagem sem legenda, não foi possível abrir]",
    "video": "[vídeo sem legenda, não foi possível abrir]",
    "audio": "[áudio sem transcrição]",
    "document": "[documento sem legenda, não foi possível abrir]",
    "sticker": "[figurinha, não foi possível abrir]",
    "contacts": "[contato sem nome nem telefone]",
    "share": "[publicação compartilhada, não foi possível abrir]",
    "story_mention": "[menção em um story, não foi possível abrir]",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER_LIMIT = 300


def mapping(item: Any, key: str) -> dict[str, Any]:
    """Read a JSON object under ``key``.

    Raises:
        ValueError: It is missing or something else.
    """
    value = item.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def items_at(item: Any, key: str) -> list[Any]:
    """Read a list under ``key``; a missing one is empty.

    Raises:
        ValueError: It is something else.
    """
    value = item.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def string(item: dict[str, Any], key: str) -> str:
    """Read a string under ``key``, as received; it may be empty.

    Raises:
        ValueError: It is missing or something else.
    """
    value = item.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a string")
    return value


def optional_text(item: dict[str, Any], key: str) -> str | None:
    """Read a string that says something to a reader; None for anything else."""
    value = item.get(key)
    return value if isinstance(value, str) and not is_effectively_empty(value) else None


def identifier(item: dict[str, Any], key: str) -> str:
    """Read an id: 1 to 300 printable characters.

    Raises:
        ValueError: It is missing, empty, too long for an index, or holds what the database would change.
    """
    value = string(item, key)
    if not value or len(value) > _IDENTIFIER_LIMIT or not value.isprintable():
        raise ValueError(f"{key} is not an id of 1 to {_IDENTIFIER_LIMIT} printable characters")
    return value


def optional_identifier(item: dict[str, Any], key: str) -> str | None:
    """Read an id that may be missing; an unusable one counts as missing."""
    try:
        return identifier(item, key)
    except ValueError:
        return None


def instant(item: dict[str, Any], *, unit_ms: int) -> datetime:
    """Read ``timestamp``, a whole number or a string of one, in units of ``unit_ms`` since 1970.

    Raises:
        ValueError: It is missing, not a whole number, or outside the calendar.
    """
    value = item.get("timestamp")
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("timestamp is not a whole number")
    try:
        return _EPOCH + timedelta(milliseconds=value * unit_ms)
    except OverflowError:
        raise ValueError("timestamp is outside the calendar") from None


def media_text(kind: str, caption: str | None) -> str:
    """Say what the model reads of a medium: its caption, or a placeholder in the customer's language."""
    return caption if caption is not None else PLACEHOLDERS[kind]
