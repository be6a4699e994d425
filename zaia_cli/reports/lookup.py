"""From what a person has in hand to the row it means.

Idea: an id, a reference number, a channel's message id or ``channel:address`` all lead to one conversation, and to one
item or reply when they say so. Invariant: never a guess; several candidates are a refusal that lists them. Tested in
``tests/store/test_reports.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.core.ids import is_reference
from zaia_cli.core.phone import match_keys
from zaia_cli.store.database import Database

__all__ = ["ItemTarget", "Target", "find", "find_item"]

_CHANNELS = ("whatsapp", "instagram", "http", "console")
_PHONE = re.compile(r"^\+?[\d ()-]{6,24}$")
_HINT = "list what there is: zaia queue list; accepted: an id, ZA-…, a channel's message id, whatsapp:5511900010000"


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference means. ``kind``: conversation, item, reply, message or receipt."""

    organization: str
    conversation_id: UUID
    item_id: UUID | None
    reply_id: UUID | None
    kind: str


@dataclass(frozen=True, slots=True)
class ItemTarget:
    """One work item and where it is."""

    organization: str
    conversation_id: UUID
    item_id: UUID


async def find(db: Database, ref: str, *, organization: str | None = None) -> Target:
    """Resolve ``ref``.

    Args:
        db: Read only.
        ref: UUID of a conversation, item, reply or message; reference number or alias; a channel's message id, inbound
            or outbound, or our opaque id; ``channel:address``, phones in any of their written forms.
        organization: Look only there.

    Raises:
        NotFoundError: Nothing matches.
        RefusedError: Several conversations, or several items, match; the message lists them.
    """
    targets = await _candidates(db, ref.strip(), organization)
    if not targets:
        where = f" in organization {organization}" if organization else ""
        raise NotFoundError(f"nothing is known as {ref!r}{where}", hint=_HINT)
    if len({(target.organization, target.conversation_id) for target in targets}) > 1:
        raise RefusedError(
            f"{ref!r} means several conversations: {'; '.join(await _described(db, targets))}",
            hint="use one of these conversation ids, or limit with --org",
            code="ambiguous",
        )
    items = {target.item_id for target in targets if target.item_id is not None}
    if len(items) > 1:
        raise RefusedError(
            f"{ref!r} means several work items of one conversation: {', '.join(sorted(map(str, items)))}",
            hint="use one of these item ids",
            code="ambiguous",
        )
    return next((target for target in targets if target.item_id is not None), targets[0])


async def find_item(db: Database, ref: str, *, organization: str | None = None) -> ItemTarget:
    """Resolve ``ref`` to one work item; a conversation with exactly one item counts.

    Raises:
        NotFoundError: Nothing matches, or it has no item.
        RefusedError: Several match.
    """
    target = await find(db, ref, organization=organization)
    if target.item_id is not None:
        return ItemTarget(target.organization, target.conversation_id, target.item_id)
    rows = await db.run(
        "reports_story.items",
        organization=target.organization,
        conversation_id=target.conversation_id,
        item_id=None,
    )
    if not rows:
        raise NotFoundError(f"{ref!r} is a {target.kind} without a work item", hint=f"zaia replay {ref}")
    if len(rows) > 1:
        listed = ", ".join(f"{row['reference']} ({row['state']})" for row in rows)
        raise RefusedError(
            f"{ref!r} has several work items: {listed}", hint="use one of these reference numbers", code="ambiguous"
        )
    return ItemTarget(target.organization, target.conversation_id, rows[0]["id"])


async def _candidates(db: Database, ref: str, organization: str | None) -> list[Target]:
    if (as_uuid := _uuid(ref)) is not None:
        return _targets(await db.run("reports_lookup.by_id", id=as_uuid, organization=organization))
    if is_reference(ref):
        rows = await db.run("reports_lookup.by_reference", reference=ref.upper(), organization=organization)
        return _targets(rows)
    for statement in ("reports_lookup.by_provider_id", "reports_lookup.by_other_provider_id"):
        if rows := await db.run(statement, provider_id=ref, organization=organization):
            return _targets(rows)
    channel, colon, address = ref.partition(":")
    if not colon or channel not in _CHANNELS:
        return []
    addresses, aliases = _forms(channel, address.strip())
    rows = await db.run(
        "reports_lookup.by_address", channel=channel, addresses=addresses, aliases=aliases, organization=organization
    )
    return _targets(rows)


def _forms(channel: str, address: str) -> tuple[list[str], list[str]]:
    phones = list(match_keys(address)) if _PHONE.match(address) else []
    aliases = [f"{channel}:{address}", f"bsuid:{address}", *(f"phone:{phone}" for phone in phones)]
    return [address, *phones], aliases


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) in (32, 36) else None
    except ValueError:
        return None


def _targets(rows: Sequence[dict[str, Any]]) -> list[Target]:
    return [
        Target(row["organization_id"], row["conversation_id"], row["item_id"], row["reply_id"], row["kind"])
        for row in rows
    ]


async def _described(db: Database, targets: Sequence[Target]) -> list[str]:
    rows = await db.run(
        "reports_lookup.describe",
        organizations=sorted({target.organization for target in targets}),
        conversations=sorted({target.conversation_id for target in targets}),
    )
    return [
        f"{row['conversation_id']} ({row['organization_id']}, {row['channel']}:{row['address']} at {row['account']}"
        + (f", thread {row['thread']!r})" if row["thread"] else ")")
        for row in rows
    ]
