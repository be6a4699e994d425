"""Statuses of what we sent: early, late, out of order, for nothing we know.

Idea: every status is kept once; those that match a part move it forward; the others wait for its id to be stored.
Invariant: a part only moves forward, and a status is evidence that an unknown send was accepted. Tested in
``tests/engine/test_delivery_cases.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zaia_cli.core.inbound import StatusUpdate
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.engine.failures import part_failed
from zaia_cli.store.database import Database, Session

__all__ = ["apply_statuses", "receive_statuses"]


async def receive_statuses(
    db: Database, channels: Mapping[str, OutboundChannel], organization_id: str, statuses: Sequence[StatusUpdate]
) -> int:
    """Keep statuses and apply those that match. Returns how many there were; repeats change nothing."""
    if not statuses:
        return 0
    rows = [
        {
            "organization_id": organization_id,
            "channel": status.channel,
            "account": status.account,
            "provider_message_id": status.provider_message_id,
            "status": status.status,
            "at": status.at,
            "opaque_id": status.opaque_id,
            "error": {"code": status.error_code, "message": status.error} if status.status == "failed" else None,
        }
        for status in statuses
    ]

    async def work(session: Session) -> None:
        new = await session.run("outbox.insert_statuses", rows)
        if new:
            await apply_statuses(session, channels, organization_id, {row["provider_message_id"] for row in new})

    await db.with_retries(work)
    return len(statuses)


async def apply_statuses(
    session: Session, channels: Mapping[str, OutboundChannel], organization_id: str, message_ids: set[str]
) -> None:
    """Apply waiting statuses of some provider message ids, hot rows locked first.

    A part that failed for good takes its conversation to the human lane.
    """
    rows: list[dict[str, Any]] = [{"provider_message_id": message_id} for message_id in sorted(message_ids)]
    targets = await session.run("outbox.status_targets", rows, organization_id=organization_id)
    if not targets:
        return
    await session.run("intake.lock_conversations", targets, organization_id=organization_id)
    moved = await session.run("outbox.apply_statuses", rows, organization_id=organization_id)
    for part in moved:
        if part["state"] == "failed":
            await part_failed(session, channels, part, actor="channel", by=f"{part['channel']}:{part['account']}")
