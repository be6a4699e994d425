"""What time brings: expired leases, aging, promises, unknown sends, closed windows, alerts.

Idea: one pass is a list of small conditional statements; any worker may run it at any time. Invariant: recovery only
puts items back to pending or into the human lane; it never runs a turn. Tested in ``tests/engine/test_recovery.py`` and
``test_intake.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from zaia_cli.core.errors import UnavailableError
from zaia_cli.engine.echoes import person_wrote
from zaia_cli.engine.failures import part_failed
from zaia_cli.engine.lanes import Handover, hand_over, lock_conversation
from zaia_cli.engine.outbox import enqueue
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.requeue import requeue
from zaia_cli.engine.statuses import apply_statuses
from zaia_cli.store.database import Session

__all__ = ["Scheduler"]

_log = logging.getLogger(__name__)

_WINDOW_S = 86_400
_HEAL_EVERY_S = 60.0
_LEASE_EXPIRED: dict[str, Any] = {"code": "lease_expired", "message": "the worker stopped without reporting"}

Row = Mapping[str, Any]


class Scheduler:
    """One pass over everything that waits for time.

    Args:
        parts: The engine.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._heals_at = 0.0
        self._passes = (
            self._recover,
            self._heal,
            self._settle_sends,
            self._settle_echoes,
            self._settle_statuses,
            self._expire_parts,
            self._age,
            self._keep_promises,
        )

    async def run_once(self) -> None:
        """Run every pass; one that fails is logged and does not stop the others.

        Raises:
            UnavailableError: The database is away.
        """
        for work in self._passes:
            try:
                await work()
            except UnavailableError:
                raise
            except Exception:
                _log.exception("scheduler pass %s failed", work.__name__)

    async def _recover(self) -> None:
        reclaim_after_s = self._parts.config.recovery.reclaim_after_s
        for row in await self._parts.db.run("scheduler.expired", reclaim_after_s=reclaim_after_s):

            async def work(session: Session, row: Row = row) -> None:
                await self._recover_one(session, row, reclaim_after_s)

            await self._parts.db.with_retries(work)

    async def _heal(self) -> None:
        """Repair, once a minute, what should never be: a lease without an attempt, a waiting item that is not due."""
        if time.monotonic() < self._heals_at:
            return
        self._heals_at = time.monotonic() + _HEAL_EVERY_S
        for statement in ("scheduler.heal_leases", "scheduler.heal_due"):
            for row in await self._parts.db.run(statement):
                _log.error("%s: %s %s", statement, row["organization_id"], row["conversation_id"])

    async def _recover_one(self, session: Session, row: Row, reclaim_after_s: float) -> None:
        organization_id, worker = row["organization_id"], self._parts.worker
        head = await lock_conversation(session, organization_id, row["conversation_id"])
        where = {"organization_id": organization_id, "token": row["token"]}
        is_still = await session.run(
            "scheduler.still_expired", **where, conversation_id=row["conversation_id"], reclaim_after_s=reclaim_after_s
        )
        if not is_still:
            return
        await session.run("turn.end_attempt", **where, state="failed", error=_LEASE_EXPIRED)
        await session.run("scheduler.record_lost_call", **where, item_id=row["item_id"])
        await session.run("events.raise_alerts", [self._reclaimed(row)])
        if head["owner"] != "agent":
            return
        if row["attempts"] < self._parts.config.recovery.max_attempts:
            await requeue(session, row, why="lease expired", actor="scheduler", by=worker, error=_LEASE_EXPIRED)
            return
        exhausted = Handover(
            "attempts exhausted: the worker stopped without reporting",
            "scheduler",
            worker,
            item_id=row["item_id"],
            error=_LEASE_EXPIRED,
        )
        await hand_over(session, self._parts.channels, organization_id, head, exhausted)

    def _reclaimed(self, row: Row) -> dict[str, Any]:
        return {
            "organization_id": row["organization_id"],
            "kind": "reclaimed",
            "dedupe_key": str(row["item_id"]),
            "message": f"{row['reference']} was reclaimed from {row['worker']}",
            "data": {"reference": row["reference"], "worker": row["worker"]},
        }

    async def _settle_sends(self) -> None:
        delivery, worker, db = self._parts.config.delivery, self._parts.worker, self._parts.db
        await db.run("gates.open_due")
        await db.run("scheduler.stuck_sending", after_s=delivery.unknown_after_s, worker=worker)
        await db.run(
            "scheduler.settle_waiting", settle_s=delivery.settle_s, max_attempts=delivery.max_attempts, worker=worker
        )
        if delivery.resend_unknown:
            await db.run("scheduler.resend_unknown", after_s=delivery.unknown_after_s, worker=worker)
        opened = await db.run(
            "scheduler.open_reconcile", after_s=delivery.unknown_after_s, max_attempts=delivery.max_attempts
        )
        if opened:
            await db.run(
                "events.raise_alerts",
                [
                    {
                        "organization_id": row["organization_id"],
                        "kind": "unknown_reply",
                        "dedupe_key": f"{row['reply_id']}:{row['n']}",
                        "message": f"delivery unknown: {row['reply_id']}:{row['n']}; see zaia reconcile",
                        "data": {"conversation": str(row["conversation_id"])},
                    }
                    for row in opened
                ],
            )

    async def _settle_echoes(self) -> None:
        db = self._parts.db
        await db.run("outbox.drop_echoes")
        for echo in await db.run("outbox.ripe_echoes"):

            async def work(session: Session, echo: Row = echo) -> None:
                await lock_conversation(session, echo["organization_id"], echo["conversation_id"])
                keys = ("organization_id", "channel", "account", "provider_id")
                if await session.run("outbox.delete_echo", **{key: echo[key] for key in keys}):
                    await person_wrote(session, self._parts.channels, echo)

            await db.with_retries(work)

    async def _settle_statuses(self) -> None:
        rows = await self._parts.db.run("scheduler.orphan_statuses")
        for organization_id in {row["organization_id"] for row in rows}:
            ids = {row["provider_message_id"] for row in rows if row["organization_id"] == organization_id}

            async def work(session: Session, organization_id: str = organization_id, ids: set[str] = ids) -> None:
                await apply_statuses(session, self._parts.channels, organization_id, ids)

            await self._parts.db.with_retries(work)

    async def _expire_parts(self) -> None:
        await self._parts.db.run("scheduler.owned_by_people", worker=self._parts.worker)
        await self._parts.db.run("scheduler.behind_failed", worker=self._parts.worker)
        for row in await self._parts.db.run("scheduler.unsendable", window_s=_WINDOW_S):

            async def work(session: Session, row: Row = row) -> None:
                await lock_conversation(session, row["organization_id"], row["conversation_id"])
                keys = ("organization_id", "reply_id", "n")
                failed = await session.run(
                    "scheduler.fail_unsendable", **{key: row[key] for key in keys}, worker=self._parts.worker
                )
                if failed:
                    part = failed[0] | {"kind": row["kind"]}
                    await part_failed(session, self._parts.channels, part, actor="scheduler", by=self._parts.worker)

            await self._parts.db.with_retries(work)

    async def _age(self) -> None:
        background_s = self._parts.config.queue.aging.background_s
        await self._parts.db.run("scheduler.age", background_s=background_s, worker=self._parts.worker)

    async def _keep_promises(self) -> None:
        async def work(session: Session) -> None:
            late = await session.run("scheduler.overdue")
            if late:
                await session.run("events.raise_alerts", [_overdue(row) for row in late])
            waiting = await session.run("scheduler.due_acknowledgements")
            await enqueue(session, self._parts.channels, [_acknowledgement(row) for row in waiting])

        await self._parts.db.with_retries(work)


def _overdue(row: Row) -> dict[str, Any]:
    return {
        "organization_id": row["organization_id"],
        "kind": "overdue",
        "dedupe_key": row["reference"],
        "message": f"{row['reference']} ({row['class']}) was promised an answer by {row['deadline_at']:%H:%M:%S} UTC",
        "data": {"reference": row["reference"], "conversation": str(row["conversation_id"])},
    }


def _acknowledgement(row: Row) -> dict[str, Any]:
    return {
        "organization_id": row["organization_id"],
        "conversation_id": row["conversation_id"],
        "channel": row["channel"],
        "kind": "acknowledgement",
        "text": (row["settings"].get("ack_message") or "").replace("{reference}", row["reference"]),
        "item_id": row["item_id"],
        "source_message": row["source_message"],
        "read_until": row["done_until"],
    }
