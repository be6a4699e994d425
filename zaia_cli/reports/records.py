"""Everything the log holds about one conversation, loaded once.

Idea: the story, the trace and the evidence are views of the same rows. Invariant: read only, one organization, one
conversation; every statement names both. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError
from zaia_cli.store.database import Database

__all__ = ["Records", "Row", "grouped", "load"]

Row = dict[str, Any]

_OF_ITEMS = (
    "reports_story.items",
    "reports_story.attempts",
    "reports_story.steps",
    "reports_story.tools",
    "reports_story.model_calls",
    "reports_story.replies",
)
_OF_CONVERSATION = (
    "reports_story.messages",
    "reports_story.parts",
    "reports_story.deliveries",
    "reports_story.statuses",
    "reports_story.handoffs",
    "reports_story.approvals",
    "reports_story.events",
    "reports_story.receipts",
)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows as the database gave them, each list in the order of its statement in ``reports_story.sql``."""

    organization: str
    conversation: Row
    messages: list[Row]
    items: list[Row]
    attempts: list[Row]
    steps: list[Row]
    tools: list[Row]
    model_calls: list[Row]
    replies: list[Row]
    parts: list[Row]
    deliveries: list[Row]
    statuses: list[Row]
    handoffs: list[Row]
    approvals: list[Row]
    events: list[Row]
    receipts: list[Row]


async def load(db: Database, organization: str, conversation_id: UUID, *, item_id: UUID | None = None) -> Records:
    """Load one conversation, or the part of it that belongs to ``item_id``.

    Messages, parts, handoffs, approvals, events and receipts are always those of the whole conversation.

    Raises:
        NotFoundError: The organization has no such conversation.
    """
    key = {"organization": organization, "conversation_id": conversation_id}
    found = await db.run("reports_story.conversation", None, **key)
    if not found:
        raise NotFoundError(f"no conversation {conversation_id} in organization {organization}", hint="zaia queue list")
    loaded: dict[str, list[Row]] = {}
    for name in _OF_ITEMS:
        loaded[name.removeprefix("reports_story.")] = await db.run(name, None, **key, item_id=item_id)
    for name in _OF_CONVERSATION:
        loaded[name.removeprefix("reports_story.")] = await db.run(name, None, **key)
    return Records(organization=organization, conversation=found[0], **loaded)


def grouped(rows: Iterable[Row], *columns: str) -> dict[Any, list[Row]]:
    """Group rows by one column, or by a tuple of several, keeping their order."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[columns[0]] if len(columns) == 1 else _key(row, columns)].append(row)
    return groups


def _key(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in columns)
