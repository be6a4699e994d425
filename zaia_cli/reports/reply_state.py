"""The one state of a reply that has many parts.

Idea: what went wrong anywhere is what an operator must see first; otherwise a reply is as far as its slowest part.
Invariant: every report derives it here. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["reply_state"]

_ORDER = ("failed", "unknown", "cancelled", "pending", "sending", "accepted", "sent", "delivered", "read")


def reply_state(part_states: Iterable[str]) -> str:
    """Derive a reply's state: failed, unknown or cancelled if any part is, else that of the least advanced part.

    A reply whose parts are not written yet is pending.
    """
    return min(part_states, key=_ORDER.index, default="pending")
