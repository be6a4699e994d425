"""Finding or making the contact and the conversation of each inbound event.

Idea: a contact is a set of aliases; the unique key on the alias decides which of two first messages made it. Invariant:
no event is left without a conversation, and nobody is rewritten: the address stays as received. Tested in
``tests/engine/test_intake.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from zaia_cli.core.ids import new_id
from zaia_cli.core.inbound import ContactMoved, Party
from zaia_cli.store.database import Session

__all__ = ["Contacts", "resolve_contacts"]

_ConversationKey = tuple[UUID, str, str, str]


@dataclass(slots=True)
class Contacts:
    """The contacts and conversations of one transaction."""

    by_alias: dict[str, UUID] = field(default_factory=dict)
    conversations: dict[_ConversationKey, UUID] = field(default_factory=dict)

    def contact_of(self, party: Party) -> UUID:
        """The contact of a party that was resolved."""
        return self.by_alias[party.aliases[0]]

    def conversation_of(self, event: Any) -> UUID:
        """The conversation of an event that was resolved."""
        key = (self.contact_of(event.party), event.channel, event.account, getattr(event, "thread", ""))
        return self.conversations[key]


async def resolve_contacts(
    session: Session, organization_id: str, events: Sequence[Any], routes: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Contacts:
    """Find or make what the events belong to.

    Args:
        session: The intake transaction.
        organization_id: The company.
        events: Everything with a ``party``, or a ``ContactMoved``.
        routes: By channel and account, for the assistant of a new conversation.
    """
    contacts = Contacts()
    parties = [party for event in events for party in _parties(event)]
    await _resolve_aliases(session, organization_id, parties, contacts)
    wanted: dict[_ConversationKey, Any] = {
        (contacts.contact_of(event.party), event.channel, event.account, getattr(event, "thread", "")): event
        for event in events
        if not isinstance(event, ContactMoved)
    }
    await _ensure_conversations(session, organization_id, wanted, routes, contacts)
    return contacts


def _parties(event: Any) -> list[Party]:
    if isinstance(event, ContactMoved):
        merged = (*event.old.aliases, *(alias for alias in event.new.aliases if alias not in event.old.aliases))
        moved = Party(event.new.address, merged, event.new.name)
        return [moved]
    return [event.party]


async def _resolve_aliases(
    session: Session, organization_id: str, parties: Sequence[Party], contacts: Contacts
) -> None:
    aliases = sorted({alias for party in parties for alias in party.aliases})
    if not aliases:
        return
    rows = [{"organization_id": organization_id, "alias": alias} for alias in aliases]
    known = {row["alias"]: row["contact_id"] for row in await session.run("intake.find_aliases", rows)}
    proposed: dict[UUID, Party] = {}
    wanted: dict[str, UUID] = {}
    for party in parties:
        existing = next((known[alias] for alias in party.aliases if alias in known), None)
        contact_id = existing or next((wanted[a] for a in party.aliases if a in wanted), None)
        if contact_id is None:
            contact_id = new_id()
            proposed[contact_id] = party
        for alias in party.aliases:
            if alias not in known:
                wanted.setdefault(alias, contact_id)
    if wanted:
        claims = [{"organization_id": organization_id, "alias": a, "contact_id": c} for a, c in wanted.items()]
        await session.run("intake.claim_aliases", claims)
        known = {row["alias"]: row["contact_id"] for row in await session.run("intake.find_aliases", rows)}
        await _settle_races(session, organization_id, parties, proposed, known)
        winners = [c for c in proposed if c in known.values()]
        await session.run(
            "intake.insert_contacts",
            [
                {"organization_id": organization_id, "id": c, "name": proposed[c].name, "address": proposed[c].address}
                for c in winners
            ],
        )
    contacts.by_alias = known


async def _settle_races(
    session: Session,
    organization_id: str,
    parties: Sequence[Party],
    proposed: Mapping[UUID, Party],
    known: dict[str, UUID],
) -> None:
    for party in parties:
        owners = [known[alias] for alias in party.aliases]
        winner = next((owner for owner in owners if owner not in proposed), owners[0])
        moved = [
            {"organization_id": organization_id, "alias": alias, "old_id": known[alias], "contact_id": winner}
            for alias in party.aliases
            if known[alias] != winner and known[alias] in proposed
        ]
        if moved:
            await session.run("intake.repoint_aliases", moved)
            known.update((str(row["alias"]), winner) for row in moved)


async def _ensure_conversations(
    session: Session,
    organization_id: str,
    wanted: Mapping[_ConversationKey, Any],
    routes: Mapping[tuple[str, str], Mapping[str, Any]],
    contacts: Contacts,
) -> None:
    rows = [
        {
            "organization_id": organization_id,
            "id": new_id(),
            "contact_id": contact_id,
            "channel": channel,
            "account": account,
            "thread": thread,
            "address": event.party.address,
            "assistant": routes[channel, account]["assistant"],
        }
        for (contact_id, channel, account, thread), event in wanted.items()
    ]
    if not rows:
        return
    found = await session.run("intake.find_conversations", rows)
    if len(found) < len(rows):
        await session.run("intake.ensure_conversations", rows)
        await session.run("intake.ensure_hot", rows)
        found = await session.run("intake.find_conversations", rows)
    contacts.conversations = {
        (row["contact_id"], row["channel"], row["account"], row["thread"]): row["id"] for row in found
    }
