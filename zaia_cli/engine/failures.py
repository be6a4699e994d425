"""What follows when a part of a reply failed for good.

Idea: the customer must not be left in silence, so the conversation goes to a person; the parts behind it are cancelled.
Invariant: called with the hot row locked, right after the part became ``failed``. Tested in
``tests/engine/test_delivery_cases.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.core.states import Actor
from zaia_cli.engine.lanes import Handover, hand_over, lock_conversation
from zaia_cli.store.database import Session

__all__ = ["part_failed"]

_SILENT_KINDS = frozenset({"acknowledgement", "duplicate", "notice"})


async def part_failed(
    session: Session, channels: Mapping[str, OutboundChannel], part: Mapping[str, Any], *, actor: Actor, by: str
) -> None:
    """Cancel what follows and hand the conversation over.

    Args:
        session: The transaction.
        channels: Splitters.
        part: ``organization_id, conversation_id, reply_id, n, kind, error``.
        actor: Who found out.
        by: Their name.
    """
    organization_id = part["organization_id"]
    await session.run("outbox.cancel_after_failure", [dict(part)], actor=actor, by=by)
    message = (part["error"] or {}).get("message") or "the channel refused it"
    if part["kind"] in _SILENT_KINDS:
        return
    head = await lock_conversation(session, organization_id, part["conversation_id"])
    await session.run(
        "events.raise_alerts",
        [
            {
                "organization_id": organization_id,
                "kind": "reply_failed",
                "dedupe_key": f"{part['reply_id']}:{part['n']}",
                "message": f"a reply could not be delivered: {message}",
                "recipient": head["settings"]["human_assignee"],
                "data": {"conversation": str(part["conversation_id"]), "error": part["error"]},
            }
        ],
    )
    if head["owner"] == "agent":
        failed = Handover(f"a reply could not be delivered: {message}", actor, by, tell_customer=False)
        await hand_over(session, channels, organization_id, head, failed)
