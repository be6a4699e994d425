"""Decisions about calls that need a person.

Idea: the decision is a row; the turn goes on from it by the same claim as everything else. Invariant: an approval is
decided once. Tested in ``tests/engine/test_approvals.py``.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.engine.lanes import event, lock_conversation
from zaia_cli.engine.requeue import requeue
from zaia_cli.store.database import Database, Session

__all__ = ["decide"]


async def decide(db: Database, org: str, approval_id: UUID, *, approved: bool, by: str, why: str) -> dict[str, Any]:
    """Approve or reject; the parked item becomes pending and continues with the decision.

    Raises:
        NotFoundError: No such approval.
        RefusedError: It was decided before, or the conversation was taken by a person meanwhile.
    """

    async def work(session: Session) -> dict[str, Any]:
        found = await session.run("people.find_approval", organization_id=org, approval_id=approval_id)
        if not found:
            raise NotFoundError(f"no approval {approval_id} in {org}", hint="zaia approvals list")
        await lock_conversation(session, org, found[0]["conversation_id"])
        state = "approved" if approved else "rejected"
        decided = await session.run(
            "people.decide", organization_id=org, approval_id=approval_id, state=state, by=by, why=why
        )
        if not decided:
            raise RefusedError("this approval was decided before", hint="zaia approvals list")
        approval = found[0]
        row = event(
            org,
            approval["conversation_id"],
            entity="approval",
            entity_id=approval_id,
            source="waiting",
            target=state,
            actor="person",
            by=by,
            why=why or approval["tool"],
            item_id=approval["item_id"],
        )
        await session.run("events.insert", [row])
        went_on = await requeue(
            session,
            approval,
            why=f"{approval['tool']} {state}",
            actor="person",
            by=by,
            counts=False,
            from_state="waiting_approval",
        )
        return {"approval": str(approval_id), "state": state, "reference": approval["reference"], "continues": went_on}

    done = await db.with_retries(work)
    await db.notify()
    return done
