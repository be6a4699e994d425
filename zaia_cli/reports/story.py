"""The story of one conversation from the log.

Idea: what ``zaia replay`` shows is derived from rows alone; nothing is called and nothing is sent. Invariant: the JSON
shape is the contract of ``CLI.md``; events come in time order. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID

from zaia_cli.core.states import recovery_state
from zaia_cli.reports.plain import plain
from zaia_cli.reports.records import Records, Row, grouped, load
from zaia_cli.reports.reply_state import reply_state
from zaia_cli.store.database import Database

__all__ = [
    "conversation_story",
    "event_view",
    "item_views",
    "late_statuses",
    "message_view",
    "person_view",
    "reply_views",
]

_BUCKETS = ("input", "cache_read", "cache_write", "output")
_STATUS_RANK = {"sent": 1, "delivered": 2, "read": 3, "failed": 4}


async def conversation_story(db: Database, organization: str, conversation_id: UUID) -> dict[str, Any]:
    """Tell one conversation in the shape of ``zaia replay --json`` (``CLI.md``).

    Raises:
        NotFoundError: No such conversation.
    """
    records = await load(db, organization, conversation_id)
    conversation = records.conversation
    references = {item["id"]: item["reference"] for item in records.items}
    story = {
        "schema_version": 1,
        "conversation": {
            "id": conversation["id"],
            "organization": organization,
            "channel": conversation["channel"],
            "account": conversation["account"],
            "address": conversation["address"],
            "thread": conversation["thread"],
            "contact": conversation["contact_name"],
            "state": conversation["state"],
            "owner": conversation["owner"],
            "owner_name": conversation["owner_name"],
            "assistant": conversation["assistant"],
        },
        "messages": [message_view(row, references) for row in records.messages],
        "items": item_views(records),
        "replies": reply_views(records),
        "handoffs": [person_view(row, references) for row in records.handoffs],
        "approvals": [person_view(row, references) for row in records.approvals],
        "events": [event_view(row, references) for row in records.events],
    }
    return plain(story)  # type: ignore[no-any-return]


def item_views(records: Records) -> list[dict[str, Any]]:
    """Nest attempts, steps, tool calls and model calls under their work items."""
    attempts = grouped(records.attempts, "item_id")
    calls = grouped(records.model_calls, "item_id")
    views = []
    for item in records.items:
        numbers = {attempt["id"]: attempt["n"] for attempt in attempts[item["id"]]}
        views.append(
            {
                "id": item["id"],
                "reference": item["reference"],
                "aliases": list(item["aliases"]),
                "thread": records.conversation["thread"],
                "state": item["state"],
                "recovery_state": recovery_state(item["state"]),
                "class": item["class"],
                "class_rule": item["class_rule"],
                "origin": item["origin"],
                "source_message": item["source_message"],
                "first_seq": item["first_seq"],
                "last_seq": item["last_seq"],
                "read_until_seq": item["read_until"],
                "result": item["result"],
                "error": item["error"],
                "trace_id": item["trace_id"],
                "opened_at": item["opened_at"],
                "started_at": item["started_at"],
                "completed_at": item["completed_at"],
                "deadline_at": item["deadline_at"],
                "overdue_at": item["overdue_at"],
                "attempts": [_attempt(attempt, records) for attempt in attempts[item["id"]]],
                "model_calls": [_call(call, numbers.get(call["attempt_id"])) for call in calls[item["id"]]],
            }
        )
    return views


def _attempt(attempt: Row, records: Records) -> dict[str, Any]:
    return {
        "n": attempt["n"],
        "id": attempt["id"],
        "worker": attempt["worker"],
        "state": attempt["state"],
        "error": attempt["error"],
        "started_at": attempt["started_at"],
        "ended_at": attempt["ended_at"],
        "steps": [_step(step, records) for step in records.steps if step["attempt_id"] == attempt["id"]],
    }


def _step(step: Row, records: Records) -> dict[str, Any]:
    key = (step["item_id"], step["n"])
    calls = [
        row
        for row in records.model_calls
        if (row["item_id"], row["step"]) == key and row["attempt_id"] == step["attempt_id"]
    ]
    tools = [row for row in records.tools if (row["item_id"], row["step"]) == key]
    return {
        "n": step["n"],
        "model": step["model"],
        "tool_calls": _tool_calls(step["answer"], tools),
        "tokens": {bucket: sum(call[f"{bucket}_tokens"] or 0 for call in calls) for bucket in _BUCKETS},
        "cost_usd": _cost(calls),
        "unpriced_calls": sum(call["cost_usd"] is None for call in calls),
        "latency_ms": step["latency_ms"],
        "superseded": step["superseded"],
        "at": step["created_at"],
    }


def _tool_calls(answer: Any, executions: list[Row]) -> list[dict[str, Any]]:
    asked = answer.get("tool_calls", []) if isinstance(answer, dict) else []
    ran = {row["call_id"] for row in executions}
    views = [
        {
            "name": row["name"],
            "args": row["arguments"],
            "result": row["result"],
            "state": row["state"],
            "side_effect": row["side_effect"],
            "ordinal": row["ordinal"],
            "at": row["started_at"],
        }
        for row in executions
    ]
    views += [
        {"name": call.get("name"), "args": call.get("arguments"), "result": None, "state": "not_run"}
        for call in asked
        if call.get("id") not in ran
    ]
    return views


def _call(call: Row, attempt: int | None) -> dict[str, Any]:
    left_out = {"item_id", "attempt_id"}
    return {"attempt": attempt} | {name: value for name, value in call.items() if name not in left_out}


def _cost(calls: Iterable[Row]) -> Decimal | None:
    known = [call["cost_usd"] for call in calls if call["cost_usd"] is not None]
    return sum(known, Decimal(0)) if known else None


def reply_views(records: Records) -> list[dict[str, Any]]:
    """Put parts, deliveries and statuses under their replies, with the reply's derived state."""
    parts = grouped(records.parts, "reply_id")
    deliveries = grouped(records.deliveries, "reply_id")
    statuses = grouped(late_statuses(records.statuses), "reply_id")
    references = {item["id"]: item["reference"] for item in records.items}
    return [
        {
            "id": reply["id"],
            "item": references.get(reply["item_id"]),
            "kind": reply["kind"],
            "author": reply["author"],
            "source_message": reply["source_message"],
            "read_until_seq": reply["read_until"],
            "state": reply_state(part["state"] for part in parts[reply["id"]]),
            "text": reply["text"],
            "provider_message_id": next(
                (part["provider_message_id"] for part in parts[reply["id"]] if part["provider_message_id"]), None
            ),
            "at": reply["created_at"],
            "parts": [_without(part, "reply_id") for part in parts[reply["id"]]],
            "deliveries": [_without(delivery, "reply_id") for delivery in deliveries[reply["id"]]],
            "statuses": [_without(status, "reply_id") for status in statuses[reply["id"]]],
        }
        for reply in records.replies
    ]


def late_statuses(statuses: Iterable[Row]) -> list[Row]:
    """Mark the statuses that came after a further one had been received: they changed nothing."""
    furthest: dict[tuple[Any, Any, str], int] = {}
    marked = []
    for row in sorted(statuses, key=lambda row: (row["received_at"], row["at"])):
        key = (row["reply_id"], row["part"], row["provider_message_id"])
        rank = _STATUS_RANK[row["status"]]
        marked.append(row | {"is_late": rank < furthest.get(key, 0)})
        furthest[key] = max(rank, furthest.get(key, 0))
    return marked


def message_view(row: Row, references: dict[UUID, str]) -> dict[str, Any]:
    """Show one message in the shape of the story."""
    return {
        "seq": row["seq"],
        "role": row["role"],
        "text": row["text"],
        "at": row["sent_at"],
        "provider_id": row["provider_id"],
        "kind": row["kind"],
        "author": row["author"],
        "item": references.get(row["item_id"]),
        "step": row["step"],
        "starts_turn": row["starts_turn"],
        "revisions": row["revisions"],
        "deleted_at": row["deleted_at"],
        "received_at": row["created_at"],
    }


def person_view(row: Row, references: dict[UUID, str]) -> dict[str, Any]:
    """Show a handoff or an approval with its item's reference."""
    return _without(row, "item_id") | {"item": references.get(row["item_id"])}


def event_view(row: Row, references: dict[UUID, str]) -> dict[str, Any]:
    """Show one event in the shape of the story."""
    return {
        "at": row["at"],
        "entity": row["entity"],
        "entity_id": row["entity_id"],
        "item": references.get(row["item_id"]),
        "from": row["from_state"],
        "to": row["to_state"],
        "actor": row["actor"],
        "by": row["by"],
        "why": row["why"],
        "trace_id": row["trace_id"],
    }


def _without(row: Row, *columns: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in columns}
