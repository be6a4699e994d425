"""What people do with conversations and items: take, assign, reply, resolve, retry, cancel, prioritize.

Idea: each is one transaction under the hot row's lock, and an event names the person. Invariant: a takeover in the
middle of a turn fences the turn out. Tested in ``tests/engine/test_people.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.core.ids import new_id, new_reference
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.core.priority import band
from zaia_cli.engine.lanes import Handover, event, hand_over, lock_conversation
from zaia_cli.engine.outbox import enqueue
from zaia_cli.engine.requeue import requeue
from zaia_cli.store.database import Database, Session

__all__ = ["assign", "cancel", "prioritize", "reply", "resolve", "retry", "take"]

Channels = Mapping[str, OutboundChannel]


async def take(
    db: Database, org: str, conversation_id: UUID, *, by: str, channels: Channels | None = None
) -> dict[str, Any]:
    """Take a conversation from the agent; a running turn ends without a word.

    Raises:
        NotFoundError: No such conversation.
    """

    async def work(session: Session) -> dict[str, Any]:
        head = await lock_conversation(session, org, conversation_id)
        where = {"organization_id": org, "conversation_id": conversation_id}
        taken = Handover("taken by a person", "person", by, assignee=by, tell_customer=False)
        if await hand_over(session, channels or {}, org, head, taken) is None:
            await session.run("lanes.reassign_handoff", **where, assignee=by)
            await session.run("events.insert", [_assigned(org, conversation_id, head["owner_name"], by, by, "taken")])
        return {"conversation": str(conversation_id), "owner": "human", "assignee": by}

    return await db.with_retries(work)


async def assign(db: Database, org: str, conversation_id: UUID, *, assignee: str, by: str) -> dict[str, Any]:
    """Give an open handoff to another person.

    Raises:
        RefusedError: Nobody has it: there is no open handoff.
    """

    async def work(session: Session) -> dict[str, Any]:
        head = await lock_conversation(session, org, conversation_id)
        where = {"organization_id": org, "conversation_id": conversation_id}
        if not await session.run("lanes.reassign_handoff", **where, assignee=assignee):
            raise RefusedError("the conversation has no open handoff", hint="zaia human list")
        await session.run("lanes.rename_owner", **where, name=assignee)
        await session.run(
            "events.insert", [_assigned(org, conversation_id, head["owner_name"], assignee, by, "assigned")]
        )
        return {"conversation": str(conversation_id), "assignee": assignee}

    return await db.with_retries(work)


async def reply(
    db: Database, org: str, conversation_id: UUID, *, text: str, by: str, channels: Channels
) -> dict[str, Any]:
    """Answer as a person: takes the conversation over if the agent has it, and answers everything received so far.

    Returns:
        ``reply`` (id) and ``conversation``.
    """

    async def work(session: Session) -> dict[str, Any]:
        head = await lock_conversation(session, org, conversation_id)
        if head["owner"] == "agent":
            taken = Handover("a person answered", "person", by, assignee=by, tell_customer=False)
            await hand_over(session, channels, org, head, taken)
        reply_id = new_id()
        await enqueue(
            session,
            channels,
            [
                {
                    "id": reply_id,
                    "organization_id": org,
                    "conversation_id": conversation_id,
                    "channel": head["channel"],
                    "kind": "human",
                    "author": by,
                    "text": text,
                    "read_until": head["seq"],
                }
            ],
        )
        await session.run("lanes.answered_by_person", organization_id=org, conversation_id=conversation_id)
        row = event(
            org,
            conversation_id,
            entity="reply",
            entity_id=reply_id,
            source=None,
            target="pending",
            actor="person",
            by=by,
            why="answered by a person",
        )
        await session.run("events.insert", [row])
        return {"reply": str(reply_id), "conversation": str(conversation_id)}

    done = await db.with_retries(work)
    await db.notify()
    return done


async def resolve(
    db: Database, org: str, conversation_id: UUID, *, by: str, return_to_agent: bool = False
) -> dict[str, Any]:
    """Close the handoff; with ``return_to_agent``, the agent answers what is still unanswered.

    Returns:
        ``owner``, ``state`` and ``reference`` of the item that was opened for what was left (or None).

    Raises:
        RefusedError: The agent has the conversation already.
    """

    async def work(session: Session) -> dict[str, Any]:
        head = await lock_conversation(session, org, conversation_id)
        if head["owner"] == "agent":
            raise RefusedError("the agent has the conversation already", hint="zaia human list")
        where = {"organization_id": org, "conversation_id": conversation_id}
        await session.run("lanes.resolve_handoff", **where, by=by)
        for item in await session.run("lanes.resolve_items", **where, by=by):
            row = _item_event(org, conversation_id, item["id"], "needs_human", "completed", by, "resolved by a person")
            await session.run("events.insert", [row])
        left = await session.run("lanes.unanswered", **where, done_until=head["done_until"])
        reopens = return_to_agent and bool(left)
        reference = await _open_item(session, org, head, left, by) if reopens else None
        rows = await session.run("lanes.now")
        now = rows[0]["now"]
        await session.run("lanes.give_back", **where, due_at=now if reopens else None, rank=int(now.timestamp() * 1000))
        if not return_to_agent:
            await session.run("lanes.answered_by_person", **where)
            await session.run("lanes.resolve_conversation", **where)
        why = "returned to the agent" if return_to_agent else "resolved"
        await session.run("events.insert", [_lane_event(org, conversation_id, by, why)])
        return {
            "conversation": str(conversation_id),
            "owner": "agent",
            "state": "open" if return_to_agent else "resolved",
            "reference": reference,
        }

    done = await db.with_retries(work)
    await db.notify()
    return done


async def _open_item(session: Session, org: str, head: Mapping[str, Any], left: list[dict[str, Any]], by: str) -> str:
    reference, item_id = new_reference(), new_id()
    rows = await session.run("lanes.now")
    now = rows[0]["now"]
    contact = await session.run("lanes.contact", organization_id=org, conversation_id=head["conversation_id"])
    item = {
        "organization_id": org,
        "id": item_id,
        "conversation_id": head["conversation_id"],
        "reference": reference,
        "class": "standard",
        "class_rule": "",
        "origin": "person",
        "requester": contact[0]["contact_id"],
        "source_message": left[-1]["provider_id"],
        "first_seq": left[0]["seq"],
        "last_seq": left[-1]["seq"],
        "due_at": now,
        "opened_at": now,
        "trace_id": new_id().hex,
    }
    await session.run("intake.save_items", [item])
    row = _item_event(
        org, head["conversation_id"], item_id, None, "pending", by, "left unanswered when returned to the agent"
    )
    await session.run("events.insert", [row])
    return reference


async def retry(db: Database, org: str, item_id: UUID, *, by: str) -> dict[str, Any]:
    """Try a failed item again with fresh attempts; the conversation goes back to the agent.

    Raises:
        NotFoundError, RefusedError: No such item, or it did not fail.
    """

    async def work(session: Session) -> dict[str, Any]:
        item = await _locked_item(session, org, item_id)
        if item["state"] not in ("needs_human", "failed"):
            raise RefusedError(f"{item['reference']} is {item['state']}; only failed items are tried again")
        if item["is_answered"]:
            raise RefusedError(f"a person has answered {item['reference']} already", hint="zaia human resolve")
        where = {"organization_id": org, "conversation_id": item["conversation_id"]}
        await session.run("lanes.resolve_handoff", **where, by=by)
        await session.run("people.reset_attempts", organization_id=org, item_id=item_id)
        rows = await session.run("lanes.now")
        await session.run("lanes.give_back", **where, due_at=None, rank=int(rows[0]["now"].timestamp() * 1000))
        await requeue(session, item, why="tried again", actor="person", by=by, from_state=item["state"])
        await session.run("events.insert", [_lane_event(org, item["conversation_id"], by, "returned to the agent")])
        return {"reference": item["reference"], "state": "pending"}

    done = await db.with_retries(work)
    await db.notify()
    return done


async def cancel(db: Database, org: str, item_id: UUID, *, by: str, why: str) -> dict[str, Any]:
    """Cancel an open item; its messages count as answered.

    Raises:
        NotFoundError, RefusedError: No such item, or it is finished.
    """

    async def work(session: Session) -> dict[str, Any]:
        item = await _locked_item(session, org, item_id)
        if item["state"] not in ("pending", "processing", "waiting_approval"):
            raise RefusedError(f"{item['reference']} is {item['state']}; only open items can be cancelled")
        is_held = item["state"] != "pending"
        await session.run("people.cancel_item", organization_id=org, item_id=item_id, held=is_held, by=by)
        row = _item_event(org, item["conversation_id"], item_id, item["state"], "cancelled", by, why)
        await session.run("events.insert", [row])
        return {"reference": item["reference"], "state": "cancelled"}

    return await db.with_retries(work)


async def prioritize(db: Database, org: str, item_id: UUID, *, item_class: str, by: str, why: str) -> dict[str, Any]:
    """Put an open item into another class. A class changes only the order, never what is allowed.

    Raises:
        NotFoundError, RefusedError: No such item, or it is not waiting.
    """

    async def work(session: Session) -> dict[str, Any]:
        item = await _locked_item(session, org, item_id)
        if item["state"] not in ("pending", "waiting_approval"):
            raise RefusedError(f"{item['reference']} is {item['state']}; only waiting items have a place in the queue")
        await session.run(
            "people.prioritize",
            organization_id=org,
            item_id=item_id,
            item_class=item_class,
            rule=f"{why} ({by})",
            band=band(item_class),
        )
        row = _item_event(org, item["conversation_id"], item_id, item["class"], item_class, by, why)
        await session.run("events.insert", [row])
        return {"reference": item["reference"], "class": item_class}

    done = await db.with_retries(work)
    await db.notify()
    return done


async def _locked_item(session: Session, org: str, item_id: UUID) -> dict[str, Any]:
    found = await session.run("people.find_item", organization_id=org, item_id=item_id)
    if not found:
        raise NotFoundError(f"no item {item_id} in {org}", hint="zaia queue list")
    await lock_conversation(session, org, found[0]["conversation_id"])
    return (await session.run("people.find_item", organization_id=org, item_id=item_id))[0]


def _item_event(
    org: str, conversation_id: UUID, item_id: UUID, source: str | None, target: str, by: str, why: str
) -> dict[str, Any]:
    return event(
        org,
        conversation_id,
        entity="item",
        entity_id=item_id,
        source=source,
        target=target,
        actor="person",
        by=by,
        why=why,
        item_id=item_id,
    )


def _assigned(org: str, conversation_id: UUID, before: str, assignee: str, by: str, why: str) -> dict[str, Any]:
    return event(
        org,
        conversation_id,
        entity="handoff",
        entity_id=conversation_id,
        source=before,
        target=assignee,
        actor="person",
        by=by,
        why=why,
    )


def _lane_event(org: str, conversation_id: UUID, by: str, why: str) -> dict[str, Any]:
    return event(
        org,
        conversation_id,
        entity="conversation",
        entity_id=conversation_id,
        source="human",
        target="agent",
        actor="person",
        by=by,
        why=why,
    )
