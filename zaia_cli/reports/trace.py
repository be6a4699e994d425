"""Everything about one request.

Idea: the story of the item's conversation cut to that item, with what the story leaves out: the ledger, receipts and
alerts. Invariant: read only. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from zaia_cli.reports.lookup import Target
from zaia_cli.reports.plain import plain
from zaia_cli.reports.records import Records, load
from zaia_cli.reports.story import event_view, item_views, message_view, person_view, reply_views
from zaia_cli.store.database import Database

__all__ = ["request_trace"]


async def request_trace(db: Database, target: Target) -> dict[str, Any]:
    """Collect what is known about ``target``: its item, or every item when it is a whole conversation.

    Returns:
        ``conversation``, ``messages`` (those the items cover), ``items`` with attempts, steps, tools and model calls,
        ``replies`` with parts, deliveries and statuses, ``handoffs``, ``approvals``, ``receipts``, ``events``,
        ``alerts`` and ``cost`` (``cost_usd`` null when no call has a known cost).
    """
    records = await load(db, target.organization, target.conversation_id, item_id=target.item_id)
    alerts = await db.run("reports_story.alerts", organization=target.organization, names=_names(target, records))
    references = {item["id"]: item["reference"] for item in records.items}
    messages = [row for row in records.messages if target.item_id is None or _concerns(row, records)]
    provider_ids = {row["provider_id"] for row in messages}
    chosen = target.item_id
    trace = {
        "schema_version": 1,
        "found_as": target.kind,
        "conversation": records.conversation | {"organization": target.organization},
        "messages": [message_view(row, references) for row in messages],
        "items": item_views(records),
        "replies": reply_views(records),
        "handoffs": [person_view(row, references) for row in records.handoffs if chosen in (None, row["item_id"])],
        "approvals": [person_view(row, references) for row in records.approvals if chosen in (None, row["item_id"])],
        "receipts": [row for row in records.receipts if chosen is None or row["provider_id"] in provider_ids],
        "events": [event_view(row, references) for row in records.events if chosen is None or _is_about(row, records)],
        "alerts": alerts,
        "cost": _cost(records),
    }
    return plain(trace)  # type: ignore[no-any-return]


def _names(target: Target, records: Records) -> list[str]:
    """Whatever an alert about the target may name."""
    rows = [*records.items, *records.replies, *records.handoffs, *records.approvals]
    about = [row for row in rows if target.item_id in (None, row["id"], row.get("item_id"))]
    names = [str(row["id"]) for row in about] + [item["reference"] for item in records.items]
    return names if target.item_id is not None else [*names, str(target.conversation_id)]


def _concerns(message: dict[str, Any], records: Records) -> bool:
    for item in records.items:
        covered = message["seq"] is not None and item["first_seq"] <= message["seq"] <= item["last_seq"]
        if covered or message["item_id"] == item["id"]:
            return True
    return False


def _is_about(event: dict[str, Any], records: Records) -> bool:
    items = {item["id"] for item in records.items}
    if event["item_id"] is not None:
        return event["item_id"] in items
    owners = {str(item) for item in items} | {str(reply["id"]) for reply in records.replies}
    return event["entity_id"].split(":")[0] in owners


def _cost(records: Records) -> dict[str, Any]:
    known = [call["cost_usd"] for call in records.model_calls if call["cost_usd"] is not None]
    return {
        "cost_usd": sum(known, Decimal(0)) if known else None,
        "calls": len(records.model_calls),
        "unpriced_calls": len(records.model_calls) - len(known),
        "failed_calls": sum(call["outcome"] != "ok" for call in records.model_calls),
    }
