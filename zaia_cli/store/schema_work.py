"""The tables of tenants, conversations, work and the ledger.

Idea: one hot row per conversation, never deleted, carries what claiming needs; everything else hangs on it. Invariant:
states are CHECKed against ``core.states``; a conversation has at most one pending and one held item. Tested in
``tests/store/test_schema.py`` and ``test_tenancy.py``.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    UniqueConstraint,
    text,
)

from zaia_cli.core.states import ITEM_STATES
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

CLASSES = ("urgent", "standard", "background")
CHANNELS = ("whatsapp", "instagram", "http", "console")
ROLES = ("customer", "agent", "human", "tool_call", "tool_result", "note")

organizations = Table(
    "organizations",
    metadata,
    words("id"),
    words("name"),
    words("timezone"),
    document("settings", "{}"),
    moment("created_at", now=True),
    PrimaryKeyConstraint("id"),
    CheckConstraint("id ~ '^[a-z0-9][a-z0-9-]{0,62}$'", name="slug"),
)

channel_routes = Table(
    "channel_routes",
    metadata,
    words("channel"),
    words("account"),
    words(ORG),
    PrimaryKeyConstraint("channel", "account"),
    ForeignKeyConstraint([ORG], ["organizations.id"], name="fk_channel_routes_organization"),
)

departments = tenant(
    "departments",
    identifier(),
    words("name"),
    words("name_key"),
    words("assignee", ""),
    UniqueConstraint(ORG, "name_key"),
)

assistants = tenant(
    "assistants",
    words("slug"),
    words("prompt"),
    words("prompt_version"),
    words("model"),
    document("fallback_models", "[]"),
    document("tools", "[]"),
    document("budgets", "{}"),
    key=("slug",),
)

channel_accounts = tenant(
    "channel_accounts",
    words("channel"),
    words("account"),
    words("assistant"),
    words("base_url", ""),
    words("token_env", ""),
    words("app_secret_env", ""),
    words("verify_token_env", ""),
    moment("last_event_at"),
    points("assistant", to="assistants", at=("slug",)),
    one_of("channel", CHANNELS),
    key=("channel", "account"),
)

contacts = tenant("contacts", identifier(), words("name", null=True), words("address"), moment("created_at", now=True))

contact_aliases = tenant(
    "contact_aliases",
    words("alias"),
    identifier("contact_id"),
    points("contact_id", to="contacts", deferrable=True, initially="DEFERRED"),
    key=("alias",),
)

conversations = tenant(
    "conversations",
    identifier(),
    identifier("contact_id"),
    words("channel"),
    words("account"),
    words("thread", ""),
    words("address"),
    words("state", "open"),
    words("assistant"),
    moment("last_customer_at"),
    moment("created_at", now=True),
    points("contact_id", to="contacts"),
    points("channel", "account", to="channel_accounts", at=("channel", "account")),
    points("assistant", to="assistants", at=("slug",)),
    UniqueConstraint(ORG, "contact_id", "channel", "account", "thread"),
    one_of("state", ("open", "resolved")),
)

hot = tenant(
    "hot",
    identifier("conversation_id"),
    words("owner", "agent"),
    words("owner_name", ""),
    number("seq", 0),
    number("last_in", 0),
    number("done_until", 0),
    moment("due_at"),
    Column("band", SmallInteger, nullable=False, server_default=text("1")),
    number("rank", 0, big=True),
    words("lease_holder", null=True),
    moment("lease_until"),
    identifier("token", null=True),
    flag("revised"),
    points("conversation_id", to="conversations"),
    one_of("owner", ("agent", "human")),
    CheckConstraint("(token IS NULL) = (lease_until IS NULL)", name="lease_whole"),
    CheckConstraint("done_until <= seq AND last_in <= seq", name="counters"),
    CheckConstraint("owner = 'agent' OR due_at IS NULL", name="human_not_due"),
    Index("ix_hot_due", "band", "rank", postgresql_where=text("due_at IS NOT NULL")),
    key=("conversation_id",),
)

messages = tenant(
    "messages",
    identifier(),
    identifier("conversation_id"),
    Column("position", BigInteger, Identity(always=True), nullable=False),
    number("seq", null=True),
    number("after_seq", 0),
    words("role"),
    words("kind", "text"),
    words("text"),
    words("provider_id", null=True),
    words("reply_to", null=True),
    identifier("item_id", null=True),
    number("step", null=True),
    words("author", ""),
    flag("starts_turn"),
    document("fields", "{}"),
    document("revisions", "[]"),
    moment("deleted_at"),
    document("raw"),
    moment("sent_at", now=True),
    moment("created_at", now=True),
    points("conversation_id", to="conversations"),
    points("item_id", to="work_items"),
    one_of("role", ROLES),
    UniqueConstraint(ORG, "conversation_id", "seq"),
    Index("ix_messages_conversation", ORG, "conversation_id", "after_seq", "position"),
    Index("ix_messages_provider", ORG, "provider_id", postgresql_where=text("provider_id IS NOT NULL")),
)

pending_changes = tenant(
    "pending_changes",
    words("channel"),
    words("account"),
    words("original_id"),
    words("change"),
    words("provider_id"),
    words("kind", "text"),
    words("text", null=True),
    moment("sent_at", now=True),
    document("raw"),
    one_of("change", ("edit", "revoke")),
    key=("channel", "account", "original_id", "provider_id"),
)

work_items = tenant(
    "work_items",
    identifier(),
    identifier("conversation_id"),
    words("reference"),
    words("class"),
    words("class_rule", ""),
    words("state"),
    words("origin"),
    identifier("requester"),
    words("request_key", null=True),
    words("source_message", null=True),
    number("first_seq"),
    number("last_seq"),
    number("read_until", null=True),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("yields", SmallInteger, nullable=False, server_default=text("0")),
    moment("due_at"),
    moment("opened_at", now=True),
    moment("deadline_at"),
    moment("aged_at"),
    moment("overdue_at"),
    moment("ack_at"),
    moment("started_at"),
    moment("completed_at"),
    document("result"),
    document("error"),
    words("trace_id"),
    moment("updated_at", now=True),
    points("conversation_id", to="conversations"),
    points("requester", to="contacts"),
    UniqueConstraint(ORG, "reference"),
    one_of("state", ITEM_STATES),
    one_of("class", CLASSES),
    CheckConstraint("state <> 'completed' OR result IS NOT NULL", name="completed_has_result"),
    CheckConstraint("state NOT IN ('failed', 'needs_human') OR error IS NOT NULL", name="failed_has_error"),
    Index("uq_work_items_pending", ORG, "conversation_id", unique=True, postgresql_where=text("state = 'pending'")),
    Index(
        "uq_work_items_held",
        ORG,
        "conversation_id",
        unique=True,
        postgresql_where=text("state IN ('processing', 'waiting_approval')"),
    ),
    Index("ix_work_items_conversation", ORG, "conversation_id"),
    Index("ix_work_items_request", ORG, "request_key", postgresql_where=text("request_key IS NOT NULL")),
    Index("ix_work_items_state", "state", "opened_at"),
)

item_aliases = tenant(
    "item_aliases",
    words("reference"),
    identifier("item_id"),
    points("item_id", to="work_items"),
    key=("reference",),
)

attempts = tenant(
    "attempts",
    identifier(),
    identifier("item_id"),
    number("n"),
    words("worker"),
    words("state", "running"),
    document("error"),
    moment("started_at", now=True),
    moment("ended_at"),
    points("item_id", to="work_items"),
    one_of("state", ("running", "succeeded", "failed", "yielded", "cancelled")),
    UniqueConstraint(ORG, "item_id", "n"),
    Index("uq_attempts_running", ORG, "item_id", unique=True, postgresql_where=text("state = 'running'")),
)

steps = tenant(
    "steps",
    identifier("item_id"),
    number("n"),
    identifier("attempt_id"),
    words("model"),
    document("answer", "{}"),
    number("read_until"),
    number("tokens", 0),
    number("latency_ms", 0),
    flag("superseded"),
    moment("created_at", now=True),
    points("item_id", to="work_items"),
    points("attempt_id", to="attempts"),
    key=("item_id", "n"),
)

tool_executions = tenant(
    "tool_executions",
    identifier("item_id"),
    number("step"),
    number("ordinal"),
    words("call_id"),
    words("name"),
    document("arguments"),
    words("state"),
    flag("side_effect"),
    words("result", null=True),
    moment("started_at", now=True),
    moment("ended_at"),
    points("item_id", "step", to="steps", at=("item_id", "n")),
    one_of("state", ("started", "succeeded", "failed", "waiting_approval")),
    key=("item_id", "step", "ordinal"),
)

model_calls = tenant(
    "model_calls",
    identifier("item_id"),
    number("step"),
    number("try"),
    identifier("conversation_id"),
    identifier("attempt_id"),
    words("assistant"),
    words("prompt"),
    words("prompt_version"),
    words("prompt_sha256"),
    words("model"),
    words("provider_model", null=True),
    words("purpose"),
    words("outcome"),
    words("error", null=True),
    *(
        number(f"{bucket}_tokens", null=True)
        for bucket in ("input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
    ),
    flag("usage_estimated"),
    number("latency_ms"),
    Column("cost_usd", Numeric, nullable=True),
    document("price"),
    moment("at", now=True),
    points("item_id", to="work_items"),
    points("attempt_id", to="attempts"),
    points("conversation_id", to="conversations"),
    Index("ix_model_calls_at", ORG, "at"),
    key=("item_id", "attempt_id", "step", "try"),
)
