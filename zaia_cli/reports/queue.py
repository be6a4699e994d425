"""The queue's health, its items, and the evidence for each.

Idea: ``zaia queue`` shows counts that add up: every item has one state, every reply one derived state. Invariant: the
JSON of ``stats`` is the contract of ``CLI.md``. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from zaia_cli.core.errors import ConfigError
from zaia_cli.core.states import ITEM_STATES, PART_STATES
from zaia_cli.reports.lookup import ItemTarget
from zaia_cli.reports.plain import plain, seconds
from zaia_cli.reports.records import load
from zaia_cli.reports.reply_state import reply_state
from zaia_cli.reports.story import item_views, reply_views
from zaia_cli.store.database import Database

__all__ = ["item_evidence", "queue_items", "queue_stats", "rejected_inputs"]

CLASSES = ("urgent", "standard", "background")


async def queue_stats(db: Database, *, organization: str | None = None) -> dict[str, Any]:
    """Count the queue in the shape of ``zaia queue stats --json`` (``CLI.md``)."""
    async with db.transaction() as session:
        states = await session.run("reports_queue.states", organization=organization)
        oldest = await session.run("reports_queue.oldest", organization=organization)
        counters = (await session.run("reports_queue.counters", organization=organization))[0]
        groups = await session.run("reports_queue.replies", organization=organization)
    items = {row["state"]: row["items"] for row in states}
    waits = {row["class"]: seconds(row["oldest_s"]) for row in oldest}
    replies: Counter[str] = Counter()
    for row in groups:
        replies[reply_state(row["states"])] += row["replies"]
    return {
        "schema_version": 1,
        **{state: items.get(state, 0) for state in ITEM_STATES},
        "oldest_pending_s": {name: waits.get(name) for name in CLASSES},
        "overdue": sum(row["overdue"] for row in states),
        **{name: int(value) for name, value in counters.items()},
        "replies": {state: replies[state] for state in PART_STATES},
    }


async def queue_items(
    db: Database,
    *,
    organization: str | None = None,
    state: str | None = None,
    item_class: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """List work items, open ones first, the most urgent and oldest on top.

    Raises:
        ConfigError: No such state or class.
    """
    for value, known, what in ((state, ITEM_STATES, "state"), (item_class, CLASSES, "class")):
        if value is not None and value not in known:
            raise ConfigError(f"no {what} named {value!r}", hint=f"one of: {', '.join(known)}", code="usage")
    rows = await db.run(
        "reports_queue.list", organization=organization, state=state, item_class=item_class, limit=limit
    )
    return [plain(row | {"age_s": seconds(row["age_s"])}) for row in rows]


async def item_evidence(db: Database, target: ItemTarget) -> dict[str, Any]:
    """Show one item with the proof of what became of it.

    Returns:
        ``item`` (as in the story) and ``evidence``: ``reply`` texts with their states, ``provider_message_ids``,
        ``side_effects`` (tools that act outside) and ``error``; ``is_delivered`` is True only when the channel accepted
        every part of every answer, and None when the item has no answer.
    """
    records = await load(db, target.organization, target.conversation_id, item_id=target.item_id)
    item = item_views(records)[0]
    replies = reply_views(records)
    answers = [reply for reply in replies if reply["kind"] == "answer"]
    done = {"accepted", "sent", "delivered", "read"}
    evidence = {
        "replies": [{name: reply[name] for name in ("id", "kind", "state", "author", "text")} for reply in replies],
        "provider_message_ids": [
            part["provider_message_id"]
            for reply in replies
            for part in reply["parts"]
            if part["provider_message_id"] is not None
        ],
        "side_effects": [
            {name: row[name] for name in ("step", "ordinal", "name", "arguments", "state", "result")}
            for row in records.tools
            if row["side_effect"]
        ],
        "is_delivered": all(reply["state"] in done for reply in answers) if answers else None,
        "error": item["error"],
    }
    conversation = records.conversation
    shown = {
        "organization": target.organization,
        "conversation": conversation["id"],
        "address": f"{conversation['channel']}:{conversation['address']}",
    }
    return plain({"schema_version": 1, "item": shown | item, "evidence": evidence})  # type: ignore[no-any-return]


async def rejected_inputs(db: Database, *, organization: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """List inputs that could not be read, newest first, with the raw item."""
    rows = await db.run("reports_queue.rejected", organization=organization, limit=limit)
    return [plain(row) for row in rows]
