"""From stored messages to what the model reads.

Idea: messages come in the order in which they were answered, tool steps of earlier items before their answer.
Invariant: a deleted message is never shown, and ``read_until`` is the largest inbound ``seq`` that is in here. Tested
in ``tests/unit/test_history.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zaia_cli.agent.loop import StepRecord, step_messages
from zaia_cli.core.chat import ChatMessage
from zaia_cli.core.text import is_effectively_empty

__all__ = ["History", "build_history"]


@dataclass(frozen=True, slots=True)
class History:
    """What a turn reads, cut at what its stored steps had read.

    ``unanswered_count`` counts messages that still ask for an answer; ``read_until`` is an inbound ``seq``.
    """

    messages: tuple[ChatMessage, ...]
    later: tuple[ChatMessage, ...]
    read_until: int
    unanswered_count: int


def build_history(
    rows: Sequence[Mapping[str, Any]],
    *,
    done_until: int,
    stored_until: int | None,
    earlier_steps: Mapping[Any, Sequence[StepRecord]],
) -> History:
    """Order messages for the model.

    Args:
        rows: Rows of ``turn.history``, already ordered; deleted ones included, so that they count as read.
        done_until: Last answered ``seq``.
        stored_until: ``read_until`` of the item's stored steps; None when it has none.
        earlier_steps: Tool steps of earlier items, by item id.
    """
    messages: list[ChatMessage] = []
    later: list[ChatMessage] = []
    shown: set[Any] = set()
    read_until, unanswered = done_until, 0
    # What is still unanswered stands last, behind words that did not answer it (a handoff text).
    for row in sorted(rows, key=lambda row: row["seq"] is not None and row["seq"] > done_until):
        if row["seq"] is not None:
            read_until = max(read_until, row["seq"])
        if row["is_deleted"] or is_effectively_empty(row["text"]):
            continue
        target = later if stored_until is not None and row["after_seq"] > stored_until else messages
        if row["role"] in ("agent", "human"):
            item = row["item_id"]
            if item is not None and item not in shown:
                shown.add(item)
                for step in earlier_steps.get(item, ()):
                    target.extend(step_messages(step))
            target.append(ChatMessage("assistant", row["text"]))
        elif row["role"] in ("customer", "note") and row["kind"] != "reaction":
            target.append(ChatMessage("user", row["text"]))
            if row["seq"] is not None and row["seq"] > done_until and row["starts_turn"]:
                unanswered += 1
    return History(tuple(messages), tuple(later), read_until, unanswered)
