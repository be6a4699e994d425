"""Putting texts into the outbox: reply, parts, and what the conversation remembers of it.

Idea: whoever wants something said (turn commit, handoff, acknowledgement, person) inserts rows in its own transaction;
only ``engine.delivery`` sends. Invariant: one reply per (item, kind), cut by the channel's own limit. Tested in
``tests/engine/test_delivery_cases.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zaia_cli.core.ids import new_id
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.store.database import Session

__all__ = ["enqueue"]

_REMEMBERED = {"answer": "agent", "handoff": "agent", "human": "human"}


async def enqueue(
    session: Session, channels: Mapping[str, OutboundChannel], rows: Sequence[Mapping[str, Any]]
) -> set[Any]:
    """Insert replies with their parts in the caller's transaction.

    Args:
        session: The transaction that decided to speak; the hot row is locked.
        channels: Splitters by channel kind.
        rows: ``organization_id, conversation_id, channel, kind, text, item_id, source_message, read_until, author``;
            an ``id`` is made when missing.

    Returns:
        Ids of the replies that are new; a second reply of one kind for an item is dropped.
    """
    replies = [{"item_id": None, "source_message": None, "author": "agent", "id": new_id(), **row} for row in rows]
    if not replies:
        return set()
    fresh = {row["id"] for row in await session.run("outbox.insert_replies", replies)}
    parts, remembered = [], []
    for reply in replies:
        if reply["id"] not in fresh:
            continue
        for n, text in enumerate(channels[reply["channel"]].split(reply["text"]), start=1):
            parts.append(
                {
                    "organization_id": reply["organization_id"],
                    "reply_id": reply["id"],
                    "n": n,
                    "conversation_id": reply["conversation_id"],
                    "text": text,
                }
            )
        if reply["kind"] in _REMEMBERED:
            remembered.append(
                {
                    "organization_id": reply["organization_id"],
                    "id": new_id(),
                    "conversation_id": reply["conversation_id"],
                    "after_seq": reply["read_until"],
                    "role": _REMEMBERED[reply["kind"]],
                    "kind": reply["kind"],
                    "text": reply["text"],
                    "item_id": reply["item_id"],
                    "author": reply["author"],
                }
            )
    await session.run("outbox.insert_parts", parts)
    await session.run("intake.insert_messages", remembered)
    return fresh
