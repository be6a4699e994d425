"""Moving a conversation between the agent and people.

Idea: every way into the human lane (a tool's transfer, an error, an echo, a person's word) is this one function, in the
caller's transaction, under the hot row's lock. Invariant: the token goes with the owner, so a running turn is fenced
out; the customer gets the configured message once per handoff. Tested in ``tests/engine/test_people.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError
from zaia_cli.core.ids import new_id
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.core.states import Actor
from zaia_cli.engine.outbox import enqueue
from zaia_cli.store.database import Session

__all__ = ["Handover", "event", "hand_over", "lock_conversation"]


@dataclass(frozen=True, slots=True)
class Handover:
    """Why and to whom a conversation goes.

    ``item_id`` is the item that could not be finished (it becomes ``needs_human`` with ``error``) or None.
    ``source_item`` is the item in whose name the customer is told. ``tell_customer`` False: a person is already
    speaking, or nothing may be sent.
    """

    reason: str
    actor: Actor
    by: str
    assignee: str = ""
    department_id: UUID | None = None
    item_id: UUID | None = None
    source_item: UUID | None = None
    error: Mapping[str, Any] | None = None
    note: str = ""
    tell_customer: bool = True


def event(
    organization_id: str,
    conversation_id: UUID,
    *,
    entity: str,
    entity_id: object,
    source: str | None,
    target: str | None,
    actor: Actor,
    by: str,
    why: str,
    item_id: UUID | None = None,
) -> dict[str, Any]:
    """Make a row for ``events.insert``."""
    return {
        "organization_id": organization_id,
        "conversation_id": conversation_id,
        "item_id": item_id,
        "entity": entity,
        "entity_id": str(entity_id),
        "from_state": source,
        "to_state": target,
        "actor": actor,
        "by": by,
        "why": why,
    }


async def lock_conversation(session: Session, organization_id: str, conversation_id: UUID) -> dict[str, Any]:
    """Lock the hot row, always the first lock.

    Raises:
        NotFoundError: There is no such conversation in this organization.
    """
    rows = await session.run("lanes.lock", organization_id=organization_id, conversation_id=conversation_id)
    if not rows:
        raise NotFoundError(f"no conversation {conversation_id} in {organization_id}", hint="zaia queue list")
    return rows[0]


async def hand_over(
    session: Session,
    channels: Mapping[str, OutboundChannel],
    organization_id: str,
    head: Mapping[str, Any],
    handover: Handover,
) -> UUID | None:
    """Give a locked conversation to people.

    Args:
        session: The transaction that holds the hot row's lock.
        channels: Splitters, for the customer's message.
        organization_id: The company.
        head: Row of ``lanes.lock``.
        handover: Why and to whom.

    Returns:
        The new handoff's id, or None when one was open already.
    """
    settings = head["settings"]
    where = {"organization_id": organization_id, "conversation_id": head["conversation_id"]}
    assignee = handover.assignee or settings["human_assignee"]
    story = {"actor": handover.actor, "by": handover.by, "why": handover.reason}
    await session.run("lanes.own", **where, name=assignee)
    error = dict(handover.error) if handover.error else {"code": "handoff", "message": handover.reason}
    await session.run("lanes.stop_items", **where, item_id=handover.item_id, error=error, **story)
    await session.run("lanes.cancel_answers", **where, **story)
    handoff_id = new_id()
    opened = await session.run(
        "lanes.open_handoff",
        **where,
        id=handoff_id,
        item_id=handover.item_id or handover.source_item,
        department_id=handover.department_id,
        assignee=assignee,
        reason=handover.reason,
        note=handover.note,
    )
    if head["owner"] != "human":
        await session.run("events.insert", [_taken(organization_id, head, handover, assignee)])
    if not opened:
        return None
    await session.run("events.raise_alerts", [_alert(organization_id, head, handover, handoff_id, assignee)])
    if handover.tell_customer:
        await enqueue(session, channels, [_message(organization_id, head, handover)])
    return handoff_id


def _taken(organization_id: str, head: Mapping[str, Any], handover: Handover, assignee: str) -> dict[str, Any]:
    return event(
        organization_id,
        head["conversation_id"],
        entity="conversation",
        entity_id=head["conversation_id"],
        source=head["owner"],
        target="human",
        actor=handover.actor,
        by=handover.by,
        why=f"{handover.reason}; for {assignee}",
        item_id=handover.item_id or handover.source_item,
    )


def _alert(
    organization_id: str, head: Mapping[str, Any], handover: Handover, handoff_id: UUID, assignee: str
) -> dict[str, Any]:
    return {
        "organization_id": organization_id,
        "kind": "human_lane",
        "dedupe_key": str(handoff_id),
        "message": f"{head['channel']} conversation waits for {assignee}: {handover.reason}",
        "recipient": assignee,
        "data": {"conversation": str(head["conversation_id"])},
    }


def _message(organization_id: str, head: Mapping[str, Any], handover: Handover) -> dict[str, Any]:
    return {
        "organization_id": organization_id,
        "conversation_id": head["conversation_id"],
        "channel": head["channel"],
        "kind": "handoff",
        "text": head["settings"]["handoff_message"],
        "item_id": handover.item_id or handover.source_item,
        "read_until": head["seq"],
    }
