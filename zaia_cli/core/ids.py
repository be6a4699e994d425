"""Identifiers: time-ordered UUIDs for rows, short references for people, opaque ids for deliveries.

Idea: ids are made by the process that writes the row, so that rows of one transaction can name each other. Invariant:
a reference has no letters that are misread on a phone. Tested in ``tests/unit/test_ids.py``.
"""

from __future__ import annotations

import os
import secrets
import time
from uuid import UUID

__all__ = ["is_reference", "new_id", "new_reference", "opaque_id", "parse_opaque_id"]

_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
_REFERENCE_LENGTH = 8


def new_id() -> UUID:
    """Make a UUID of version 7: sorts by creation time, so index pages stay warm.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & ((1 << 48) - 1)) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def new_reference() -> str:
    """Make a reference number such as ``ZA-7F3K2QXM`` (30^8 of them, unique per organization by the database)."""
    return "ZA-" + "".join(secrets.choice(_ALPHABET) for _ in range(_REFERENCE_LENGTH))


def is_reference(text: str) -> bool:
    """Whether ``text`` looks like a reference number."""
    body = text.upper().removeprefix("ZA-")
    return text.upper().startswith("ZA-") and body != "" and set(body) <= set(_ALPHABET)


def opaque_id(reply_id: UUID, part: int, delivery: int) -> str:
    """Name one delivery to the channel, which echoes it in its statuses: ``z1:<reply>:<part>:<delivery>``."""
    return f"z1:{reply_id.hex}:{part}:{delivery}"


def parse_opaque_id(text: str) -> tuple[UUID, int, int] | None:
    """Read an opaque id back to (reply, part, delivery); None when it is not one of ours."""
    fields = text.split(":")
    if len(fields) != 4 or fields[0] != "z1":
        return None
    try:
        return UUID(hex=fields[1]), int(fields[2]), int(fields[3])
    except ValueError:
        return None
