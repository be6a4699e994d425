"""Rows as plain data, the same way in every report.

Idea: reports hand out only what JSON can hold: times as UTC text, money as decimal text, ids as text. Invariant: no
float ever carries money, and every time says ``+00:00``. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["money", "plain", "seconds"]


def plain(value: Any) -> Any:
    """Turn a row, or any nesting of rows, into what JSON can hold; Decimal becomes text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Decimal):
        return money(value)
    if isinstance(value, (UUID, date)):
        return str(value)
    return value


def money(value: Decimal | None) -> str | None:
    """Write an amount as decimal text without an exponent; None (unknown) stays None."""
    return None if value is None else format(value, "f")


def seconds(value: Any) -> float | None:
    """Round a number of seconds to a millisecond; None stays None."""
    return None if value is None else round(float(value), 3)
