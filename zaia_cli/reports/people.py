"""What waits for people: the human lane and the approvals.

Idea: lists that a person works from, the longest waiting on top. Invariant: read only; deciding is the engine's. Tested
in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError
from zaia_cli.reports.plain import plain, seconds
from zaia_cli.store.database import Database

__all__ = ["approval", "approvals", "handoffs"]


async def handoffs(
    db: Database,
    *,
    organization: str | None = None,
    state: str | None = "open",
    assignee: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """List handoffs; ``state`` None means open and resolved ones."""
    rows = await db.run(
        "reports_people.handoffs", organization=organization, state=state, assignee=assignee, limit=limit
    )
    return [_shown(row) for row in rows]


async def approvals(
    db: Database, *, organization: str | None = None, state: str | None = "waiting", limit: int = 50
) -> list[dict[str, Any]]:
    """List approvals; ``state`` None means waiting and decided ones."""
    rows = await db.run("reports_people.approvals", organization=organization, state=state, id=None, limit=limit)
    return [_shown(row) for row in rows]


async def approval(db: Database, approval_id: UUID, *, organization: str | None = None) -> dict[str, Any]:
    """Find one approval.

    Raises:
        NotFoundError: No such approval.
    """
    rows = await db.run("reports_people.approvals", organization=organization, state=None, id=approval_id, limit=1)
    if not rows:
        raise NotFoundError(f"no approval {approval_id}", hint="zaia approvals list")
    return _shown(rows[0])


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return plain(row | {"age_s": seconds(row["age_s"])})  # type: ignore[no-any-return]
