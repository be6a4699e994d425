"""Echoes: what was sent from the business's own account, by us or by a person.

Idea: an echo with an id of ours is nothing new; while something of ours is in flight to that contact, an unknown echo
is held, because it may be ours; otherwise a person wrote, and the conversation is theirs. Invariant: an echo never
opens a turn. Tested in ``tests/engine/test_delivery_cases.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from zaia_cli.core.ids import new_id
from zaia_cli.core.inbound import Echo
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.engine.lanes import Handover, hand_over, lock_conversation
from zaia_cli.store.database import Session

__all__ = ["person_wrote", "receive_echoes"]


async def receive_echoes(
    session: Session,
    channels: Mapping[str, OutboundChannel],
    organization_id: str,
    grouped: Mapping[UUID, Sequence[Any]],
) -> None:
    """Handle the echoes among a transaction's events; the hot rows are locked."""
    for conversation_id, events in grouped.items():
        for echo in events:
            if isinstance(echo, Echo):
                await _receive(session, channels, organization_id, conversation_id, echo)


async def _receive(
    session: Session, channels: Mapping[str, OutboundChannel], organization_id: str, conversation_id: UUID, echo: Echo
) -> None:
    # In this order: a send that reports between the two reads is still flying in the first, or known in the second.
    flying = await session.run(
        "outbox.in_flight_parts", organization_id=organization_id, conversation_id=conversation_id
    )
    if await session.run("outbox.part_of_echo", organization_id=organization_id, provider_id=echo.provider_id):
        return
    row = {
        "organization_id": organization_id,
        "channel": echo.channel,
        "account": echo.account,
        "provider_id": echo.provider_id,
        "conversation_id": conversation_id,
        "text": echo.text,
        "sent_at": echo.sent_at,
        "raw": echo.raw,
    }
    proven = next((part for part in flying if part["state"] == "unknown" and part["text"] == echo.text), None)
    if proven is not None:
        await session.run(
            "outbox.settle",
            organization_id=organization_id,
            reply_id=proven["reply_id"],
            n=proven["n"],
            state="accepted",
            provider_message_id=echo.provider_id,
            actor="channel",
            by=f"{echo.channel}:{echo.account}",
            why="an echo shows that it was sent",
        )
    elif flying:
        await session.run("outbox.hold_echo", [row])
    else:
        await person_wrote(session, channels, row)


async def person_wrote(session: Session, channels: Mapping[str, OutboundChannel], echo: Mapping[str, Any]) -> None:
    """Keep what a person wrote from their own phone or app, and give them the conversation."""
    organization_id, conversation_id = echo["organization_id"], echo["conversation_id"]
    head = await lock_conversation(session, organization_id, conversation_id)
    by = f"{echo['channel']}:{echo['account']}"
    await session.run(
        "intake.insert_messages",
        [
            {
                "organization_id": organization_id,
                "id": new_id(),
                "conversation_id": conversation_id,
                "after_seq": head["seq"],
                "role": "human",
                "kind": "echo",
                "text": echo["text"],
                "provider_id": echo["provider_id"],
                "author": by,
                "sent_at": echo["sent_at"],
            }
        ],
    )
    if head["owner"] == "agent":
        taken = Handover("a person wrote from the business's own account", "channel", by, tell_customer=False)
        await hand_over(session, channels, organization_id, head, taken)
    await session.run("lanes.answered_by_person", organization_id=organization_id, conversation_id=conversation_id)
