"""States, and who may make each move.

Idea: one table of transitions for work items and one for reply parts; the database CHECKs the states, every statement
that moves a row names one of these moves, and an event records it. Invariant: a move that is not in the table does not
exist. Tested in ``tests/unit/test_states.py`` and, against the SQL, in ``tests/store/test_transitions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ITEM_STATES",
    "ITEM_TRANSITIONS",
    "PART_STATES",
    "PART_TRANSITIONS",
    "Actor",
    "ItemState",
    "PartState",
    "Transition",
    "recovery_state",
]

Actor = Literal["worker", "scheduler", "channel", "person"]

ItemState = Literal["pending", "processing", "completed", "failed", "needs_human", "waiting_approval", "cancelled"]
PartState = Literal["pending", "sending", "accepted", "sent", "delivered", "read", "failed", "unknown", "cancelled"]

ITEM_STATES: tuple[ItemState, ...] = (
    "pending",
    "processing",
    "completed",
    "failed",
    "needs_human",
    "waiting_approval",
    "cancelled",
)
PART_STATES: tuple[PartState, ...] = (
    "pending",
    "sending",
    "accepted",
    "sent",
    "delivered",
    "read",
    "failed",
    "unknown",
    "cancelled",
)


@dataclass(frozen=True, slots=True)
class Transition:
    """A move: from, to, by whom, and in which words an operator reads it."""

    source: str
    target: str
    by: frozenset[Actor]
    when: str


def _move(source: str, target: str, by: str, when: str) -> Transition:
    return Transition(source, target, frozenset(by.split()), when)  # type: ignore[arg-type]


ITEM_TRANSITIONS: tuple[Transition, ...] = (
    _move("pending", "processing", "worker", "claimed with a lease"),
    _move("pending", "needs_human", "channel", "a message came too late to be answered as new"),
    _move("processing", "completed", "worker", "turn committed"),
    _move("pending", "completed", "worker", "covered by a turn that read its messages"),
    _move("processing", "pending", "worker scheduler", "retry, give back, or lease expired"),
    _move("processing", "needs_human", "worker scheduler", "terminal error or attempts exhausted"),
    _move("processing", "failed", "worker scheduler", "terminal error of an item nobody waits for"),
    _move("processing", "waiting_approval", "worker", "a tool needs a person's decision"),
    _move("waiting_approval", "pending", "person scheduler", "decided or expired"),
    _move(
        "pending", "cancelled", "person channel worker scheduler", "taken by a person, revoked, absorbed or cancelled"
    ),
    _move(
        "processing",
        "cancelled",
        "person channel worker scheduler",
        "taken by a person, cancelled, every message taken back, or an earlier reply failed",
    ),
    _move(
        "waiting_approval",
        "cancelled",
        "person channel worker scheduler",
        "taken by a person, cancelled, or an earlier reply failed",
    ),
    _move("needs_human", "pending", "person", "tried again"),
    _move("failed", "pending", "person", "tried again"),
    _move("needs_human", "completed", "person", "resolved by a person"),
)

PART_TRANSITIONS: tuple[Transition, ...] = (
    _move("pending", "sending", "worker", "delivery claimed"),
    _move("pending", "cancelled", "worker scheduler person channel", "a person took over, or an earlier part failed"),
    _move("pending", "failed", "worker scheduler", "window closed or account gone"),
    _move("sending", "pending", "worker", "certain that nothing left"),
    _move("sending", "accepted", "worker", "channel answered with an id"),
    _move("sending", "failed", "worker channel", "channel refused for good"),
    _move("sending", "unknown", "worker scheduler", "outcome not known"),
    _move("unknown", "accepted", "worker channel person", "evidence: late answer, echo, or a person's word"),
    _move("unknown", "pending", "person scheduler", "resend decided"),
    _move("unknown", "failed", "person channel", "given up, or the channel says so"),
    _move("failed", "pending", "person", "sent again as a new delivery"),
    *(
        _move(source, target, "channel", "status")
        for source, targets in {
            "sending": ("sent", "delivered", "read"),
            "unknown": ("sent", "delivered", "read"),
            "accepted": ("sent", "delivered", "read", "failed"),
            "sent": ("delivered", "read", "failed"),
            "delivered": ("read",),
        }.items()
        for target in targets
    ),
)

_RECOVERY: dict[str, str] = {"needs_human": "failed", "waiting_approval": "pending", "cancelled": "completed"}


def recovery_state(state: str) -> str:
    """Reduce an item's state to the four classical ones: pending, processing, completed, failed."""
    return _RECOVERY.get(state, state)
