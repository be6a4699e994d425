"""The tables around an answer: outbox, people, gates, alerts, events, receipts.

Idea: as in ``schema``; split only for size. Invariant: one reply per (item, kind), one delivery row per send, one
receipt per provider message. Tested in ``tests/store/test_schema.py``.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from zaia_cli.core.states import PART_STATES
from zaia_cli.store.columns import (
    ORG,
    document,
    flag,
    identifier,
    metadata,
    moment,
    number,
    one_of,
    points,
    tenant,
    words,
)

__all__ = ["metadata"]

replies = tenant(
    "replies",
    identifier(),
    identifier("conversation_id"),
    identifier("item_id", null=True),
    words("kind"),
    words("author"),
    words("text"),
    words("source_message", null=True),
    number("read_until"),
    moment("created_at", now=True),
    points("conversation_id", to="conversations"),
    points("item_id", to="work_items"),
    UniqueConstraint(ORG, "item_id", "kind"),
    one_of("kind", ("answer", "handoff", "acknowledgement", "duplicate", "notice", "human")),
    Index("ix_replies_conversation", ORG, "conversation_id"),
)

parts = tenant(
    "parts",
    identifier("reply_id"),
    number("n"),
    identifier("conversation_id"),
    Column("position", BigInteger, Identity(always=True), nullable=False),
    words("text"),
    words("state", "pending"),
    number("attempts", 0),
    number("waits", 0),
    words("provider_message_id", null=True),
    document("error"),
    moment("due_at", now=True),
    moment("sending_at"),
    moment("accepted_at"),
    moment("sent_at"),
    moment("delivered_at"),
    moment("read_at"),
    moment("failed_at"),
    moment("unknown_at"),
    moment("reconcile_at"),
    moment("updated_at", now=True),
    points("reply_id", to="replies"),
    points("conversation_id", to="conversations"),
    one_of("state", PART_STATES),
    Index("ix_parts_due", "due_at", postgresql_where=text("state = 'pending'")),
    Index(
        "ix_parts_open",
        ORG,
        "conversation_id",
        "position",
        postgresql_where=text("state IN ('pending', 'sending', 'unknown')"),
    ),
    Index("ix_parts_provider", ORG, "provider_message_id", postgresql_where=text("provider_message_id IS NOT NULL")),
    key=("reply_id", "n"),
)

deliveries = tenant(
    "deliveries",
    identifier("reply_id"),
    number("part"),
    number("n"),
    words("opaque_id"),
    words("worker"),
    words("outcome", null=True),
    words("provider_message_id", null=True),
    document("error"),
    moment("started_at", now=True),
    moment("ended_at"),
    points("reply_id", "part", to="parts", at=("reply_id", "n")),
    UniqueConstraint(ORG, "opaque_id"),
    key=("reply_id", "part", "n"),
)

statuses = tenant(
    "statuses",
    words("channel"),
    words("account"),
    words("provider_message_id"),
    words("status"),
    moment("at", null=False),
    words("opaque_id", null=True),
    document("error"),
    moment("received_at", now=True),
    moment("applied_at"),
    one_of("status", ("sent", "delivered", "read", "failed")),
    Index("ix_statuses_orphans", ORG, "provider_message_id", postgresql_where=text("applied_at IS NULL")),
    key=("channel", "account", "provider_message_id", "status", "at"),
)

held_echoes = tenant(
    "held_echoes",
    words("channel"),
    words("account"),
    words("provider_id"),
    identifier("conversation_id"),
    words("text"),
    moment("sent_at", null=False),
    document("raw"),
    points("conversation_id", to="conversations"),
    key=("channel", "account", "provider_id"),
)

handoffs = tenant(
    "handoffs",
    identifier(),
    identifier("conversation_id"),
    identifier("item_id", null=True),
    identifier("department_id", null=True),
    words("assignee"),
    words("reason"),
    words("note", ""),
    words("state", "open"),
    moment("created_at", now=True),
    moment("resolved_at"),
    words("resolved_by", null=True),
    points("conversation_id", to="conversations"),
    points("item_id", to="work_items"),
    points("department_id", to="departments"),
    one_of("state", ("open", "resolved")),
    Index("uq_handoffs_open", ORG, "conversation_id", unique=True, postgresql_where=text("state = 'open'")),
)

approvals = tenant(
    "approvals",
    identifier(),
    identifier("conversation_id"),
    identifier("item_id"),
    number("step"),
    number("ordinal"),
    words("tool"),
    document("arguments", "{}"),
    words("state", "waiting"),
    words("assignee"),
    words("decided_by", null=True),
    words("why", ""),
    moment("created_at", now=True),
    moment("decided_at"),
    points("conversation_id", to="conversations"),
    points("item_id", "step", "ordinal", to="tool_executions", at=("item_id", "step", "ordinal")),
    one_of("state", ("waiting", "approved", "rejected")),
    UniqueConstraint(ORG, "item_id", "step", "ordinal"),
)

gates = tenant(
    "gates",
    words("name"),
    words("reason"),
    moment("closed_at", now=True),
    moment("closed_until"),
    key=("name",),
)

alerts = tenant(
    "alerts",
    identifier(),
    words("kind"),
    words("dedupe_key"),
    words("message"),
    words("recipient", ""),
    document("data", "{}"),
    words("state", "pending"),
    number("attempts", 0),
    number("occurrences", 1),
    moment("due_at", now=True),
    moment("created_at", now=True),
    moment("sent_at"),
    words("error", null=True),
    one_of("state", ("pending", "sent", "failed")),
    Index("uq_alerts_unsent", ORG, "kind", "dedupe_key", unique=True, postgresql_where=text("state = 'pending'")),
)

receipts = tenant(
    "receipts",
    words("channel"),
    words("account"),
    words("kind"),
    words("provider_id"),
    number("repeats", 0),
    moment("received_at", now=True),
    moment("repeated_at"),
    key=("channel", "account", "kind", "provider_id"),
)

events = tenant(
    "events",
    Column("id", BigInteger, Identity(always=True), nullable=False),
    identifier("conversation_id", null=True),
    identifier("item_id", null=True),
    words("entity"),
    words("entity_id"),
    words("from_state", null=True),
    words("to_state", null=True),
    words("actor"),
    words("by"),
    words("why", ""),
    words("trace_id", null=True),
    moment("at", now=True),
    one_of("actor", ("worker", "scheduler", "channel", "person")),
    Index("ix_events_conversation", ORG, "conversation_id", "id"),
    Index("ix_events_item", ORG, "item_id"),
)

rejected_inputs = Table(
    "rejected_inputs",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    words(ORG, null=True),
    words("channel"),
    words("account", null=True),
    words("path"),
    words("reason"),
    document("raw"),
    moment("at", now=True),
    PrimaryKeyConstraint("id"),
    ForeignKeyConstraint([ORG], ["organizations.id"], name="fk_rejected_inputs_organization"),
)

workers = Table(
    "workers",
    metadata,
    words("id"),
    moment("started_at", now=True),
    moment("seen_at", now=True),
    number("in_flight", 0),
    flag("draining"),
    PrimaryKeyConstraint("id"),
)
