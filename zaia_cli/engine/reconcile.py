"""Replies whose sending is stuck or unknown, and what a person decides about them.

Idea: the machine settles what has evidence; the rest is a list for people. Invariant: a resend is a new delivery with a
new opaque id, and an event names who decided. Tested in ``tests/engine/test_reconcile.py``.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from zaia_cli.core.errors import ConfigError, NotFoundError, RefusedError
from zaia_cli.engine.failures import part_failed
from zaia_cli.engine.lanes import lock_conversation
from zaia_cli.store.database import Database, Session

__all__ = ["fail", "mark_sent", "open_tasks", "resend"]


async def open_tasks(db: Database, older_than_s: float) -> list[dict[str, Any]]:
    """List parts that are ``unknown``, ``failed`` or ``sending`` for longer than ``older_than_s`` seconds."""
    return await db.run("people.open_sends", older_than_s=older_than_s)


async def resend(db: Database, part: str, *, by: str) -> dict[str, Any]:
    """Send an unknown or failed part again, as a new delivery. It may reach the customer twice: a person decides."""
    return await _settle(db, part, "pending", by, "sent again by a person's decision")


async def mark_sent(db: Database, part: str, *, by: str) -> dict[str, Any]:
    """Record that an unknown part did arrive."""
    return await _settle(db, part, "accepted", by, "a person saw that it was sent")


async def fail(db: Database, part: str, *, by: str) -> dict[str, Any]:
    """Record that an unknown part will not be sent; the customer waits for a person then."""
    return await _settle(db, part, "failed", by, "given up by a person")


async def _settle(db: Database, part: str, state: str, by: str, why: str) -> dict[str, Any]:
    reply_id, n = _parse(part)

    async def work(session: Session) -> dict[str, Any]:
        found = await session.run("people.find_part", reply_id=reply_id, n=n)
        if not found:
            raise NotFoundError(f"no reply part {part}", hint="zaia reconcile")
        organization_id = found[0]["organization_id"]
        head = await lock_conversation(session, organization_id, found[0]["conversation_id"])
        if state == "pending" and found[0]["kind"] == "answer" and head["owner"] == "human":
            raise RefusedError(
                f"{head['owner_name']} has the conversation; the agent's answer is not sent any more",
                hint="zaia human reply, or zaia human resolve --return-to-agent first",
            )
        moved = await session.run(
            "outbox.settle",
            organization_id=organization_id,
            reply_id=reply_id,
            n=n,
            state=state,
            provider_message_id=None,
            actor="person",
            by=by,
            why=why,
        )
        if not moved:
            raise RefusedError(f"{part} is {found[0]['state']}; nothing was changed", hint="zaia reconcile")
        if state == "failed":
            failed = {**found[0], "reply_id": reply_id, "n": n, "error": {"message": why}}
            await part_failed(session, {}, failed, actor="person", by=by)
        return {"part": part, "from": moved[0]["before"], "to": moved[0]["state"]}

    done = await db.with_retries(work)
    await db.notify()
    return done


def _parse(part: str) -> tuple[UUID, int]:
    reply, _, n = part.partition(":")
    try:
        return UUID(reply), int(n or 1)
    except ValueError as error:
        raise ConfigError(f"{part!r} is not a reply part", hint="copy it from zaia reconcile", code="usage") from error
