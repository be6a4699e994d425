"""What inbound events change in one conversation, decided under its lock.

Idea: pure bookkeeping: the hot row, the open items and the events go in; rows to write come out. Invariant: ``seq`` is
gapless and counts new inbound messages only; a burst joins the pending item; what a person owns or an approval holds
opens nothing. Tested through the real intake in ``tests/engine/test_intake.py`` and ``test_cases.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from zaia_cli.core.config import Config
from zaia_cli.core.ids import new_id, new_reference
from zaia_cli.core.inbound import Message
from zaia_cli.core.priority import ClassDecision, band, decide_class, higher
from zaia_cli.core.text import is_thanks

__all__ = ["Changes", "ConversationPlan"]

Row = dict[str, Any]


@dataclass(slots=True)
class Changes:
    """Rows to write for all conversations of one transaction, by statement."""

    messages: list[Row] = field(default_factory=list)
    revised: list[Row] = field(default_factory=list)
    stale_steps: list[Row] = field(default_factory=list)
    new_items: list[Row] = field(default_factory=list)
    extended_items: list[Row] = field(default_factory=list)
    cancelled_items: list[Row] = field(default_factory=list)
    hot: list[Row] = field(default_factory=list)
    touched: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    notices: list[Row] = field(default_factory=list)
    stale: dict[UUID, UUID] = field(default_factory=dict)
    """Conversations that go to a person because a message came too late, with the item that it opened or joined."""
    events: list[Row] = field(default_factory=list)
    alerts: list[Row] = field(default_factory=list)
    report: list[Row] = field(default_factory=list)


class ConversationPlan:
    """One locked conversation and what happens to it.

    Args:
        organization_id: The company.
        head: Row of ``intake.lock_conversations``.
        items: Its rows of ``intake.open_items``.
        settings: The organization's settings.
        config: Coalescing, staleness and promises.
        trace_id: Of this intake.
    """

    def __init__(
        self, organization_id: str, head: Row, items: list[Row], settings: Row, config: Config, trace_id: str
    ) -> None:
        self.organization_id = organization_id
        self.id: UUID = head["conversation_id"]
        self.head = head
        self.now: datetime = head["now"]
        self.settings = settings
        self.config = config
        self.trace_id = trace_id
        self.pending = next((item for item in items if item["state"] == "pending"), None)
        self.held = next((item for item in items if item["state"] != "pending"), None)
        self.is_new_item = False
        self._decision = ClassDecision("background")
        self.texts: dict[str, Row] = {}
        self.live: dict[UUID, int] = {}
        self._last_customer_at: datetime | None = None
        self._address: str | None = None
        self._reopened = False
        self.was_noticed = False

    @property
    def is_leased(self) -> bool:
        return self.head["token"] is not None

    def load(self, known: list[Row], unanswered: list[Row]) -> None:
        """Give the plan the stored messages that edits and revokes refer to, and what is unanswered."""
        self.texts = {row["provider_id"]: row for row in known}
        self.live = {row["id"]: row["seq"] for row in unanswered}

    def add_message(
        self, message: Message, early: list[Row], duplicate: Row | None, request_key: str | None, out: Changes
    ) -> None:
        """Number and keep a new message; join, open or skip an item.

        Args:
            message: The message; its receipt is new.
            early: Edits and revokes that came before it, oldest first.
            duplicate: An earlier item with the same request key (channels without ids).
            request_key: Key to store with a new item, if the message had no id.
            out: Where rows go.
        """
        self.head["seq"] += 1
        text, revisions, deleted_at = _apply_early(message, early)
        wants_turn = message.starts_turn and deleted_at is None and duplicate is None
        if self.head["state"] == "resolved" and wants_turn and is_thanks(text):
            wants_turn = False
        row = self._message_row(message, text, wants_turn) | {"revisions": revisions, "deleted_at": deleted_at}
        out.messages.append(row)
        if message.provider_id:
            self.texts[message.provider_id] = row
        self._address = message.party.address
        self._last_customer_at = max(filter(None, (self._last_customer_at, message.sent_at)))
        item: Row | None = None
        if wants_turn:
            self.live[row["id"]] = row["seq"]
            item = self._ask_for_turn(message, text, request_key, out)
        elif duplicate is not None:
            item = self._note_duplicate(duplicate, message, out)
        elif message.kind == "unsupported":
            self._say_unsupported(message, out)
        out.report.append(
            {
                "reference": item and item["reference"],
                "conversation": self.id,
                "class": item and item.get("class"),
                "message_id": message.provider_id,
                "seq": row["seq"],
                "state": item and ("needs_human" if self.id in out.stale else item.get("state", "pending")),
                "result": duplicate and duplicate.get("result"),
            }
        )

    def _message_row(self, message: Message, text: str, wants_turn: bool) -> Row:
        return {
            "organization_id": self.organization_id,
            "id": new_id(),
            "conversation_id": self.id,
            "seq": self.head["seq"],
            "after_seq": self.head["seq"],
            "role": "customer",
            "kind": message.kind,
            "text": text,
            "provider_id": message.provider_id,
            "reply_to": message.reply_to,
            "author": message.party.name or "",
            "starts_turn": wants_turn,
            "fields": message.fields,
            "raw": message.raw,
            "sent_at": message.sent_at,
        }

    def _ask_for_turn(self, message: Message, text: str, request_key: str | None, out: Changes) -> Row | None:
        self.head["last_in"] = self.head["seq"]
        if self.head["state"] == "resolved":
            self._reopened = True
        if self.head["owner"] != "agent":
            return None
        item = self._join_or_open(message, text, request_key, out)
        if (self.now - message.sent_at).total_seconds() > self.config.intake.stale_after_s:
            out.stale[self.id] = item["id"]
        return item

    def _join_or_open(self, message: Message, text: str, request_key: str | None, out: Changes) -> Row:
        decision = decide_class(
            self.settings.get("priority_rules") or (), channel=message.channel, text=text, fields=message.fields
        )
        # During an approval everything joins what waits: nobody can ask for the same thing under another number.
        is_parked = self.held is not None and self.held["state"] == "waiting_approval"
        item = self.held if is_parked else self.pending
        source = message.provider_id
        if item is None:
            item = self.pending = self._open(message, decision, source, request_key)
            self.is_new_item = True
        else:
            self._join(item, decision, out)
        item["last_seq"] = self.head["seq"]
        item["source_message"] = source or item.get("source_message")
        if not is_parked:
            self.postpone()
        if decision.item_class == "urgent":
            out.alerts.append(
                {
                    "organization_id": self.organization_id,
                    "kind": "urgent",
                    "dedupe_key": str(item["id"]),
                    "message": f"urgent request {item['reference']}: {decision.rule}",
                    "recipient": decision.alert,
                    "data": {"reference": item["reference"], "conversation": str(self.id)},
                }
            )
        return item

    def _join(self, item: Row, decision: ClassDecision, out: Changes) -> None:
        current = ClassDecision(item["class"], item["class_rule"])
        chosen = higher(current, decision)
        if chosen is not current and not self.is_new_item:
            why = "class raised: " + chosen.rule
            out.events.append(self._event("item", item["id"], current.item_class, chosen.item_class, why))
        item.update({"class": chosen.item_class, "class_rule": chosen.rule, "touched": True})
        promised = self._promised(chosen.item_class, item["opened_at"])
        item["deadline_at"] = min(filter(None, (item.get("deadline_at"), promised)), default=None)

    def _promised(self, item_class: str, opened_at: datetime) -> datetime | None:
        within_s = getattr(self.config.queue.reply_within_s, item_class, 0.0)
        return opened_at + timedelta(seconds=within_s) if within_s else None

    def _open(self, message: Message, decision: ClassDecision, source: str | None, request_key: str | None) -> Row:
        ack_after_s = float(self.settings.get("ack_after_s") or 0)
        has_late_ack = bool(self.settings.get("ack_message")) and ack_after_s > 0
        return {
            "organization_id": self.organization_id,
            "id": new_id(),
            "conversation_id": self.id,
            "reference": new_reference(),
            "class": decision.item_class,
            "class_rule": decision.rule,
            "state": "pending",
            "origin": message.channel,
            "requester": self.head["contact_id"],
            "request_key": request_key,
            "source_message": source,
            "first_seq": self.head["seq"],
            "opened_at": self.now,
            "deadline_at": self._promised(decision.item_class, self.now),
            "ack_at": self.now + timedelta(seconds=ack_after_s) if has_late_ack else None,
            "trace_id": self.trace_id,
        }

    def postpone(self) -> None:
        assert self.pending is not None
        turn = self.config.turn
        wait_s = 0.0 if self.head["channel"] == "console" else turn.coalesce_s
        longest = self.pending["opened_at"] + timedelta(seconds=turn.coalesce_max_s)
        due = min(self.now + timedelta(seconds=wait_s), longest)
        before = self.pending.get("due_at")
        self.pending["due_at"] = max(due, before) if before and before > longest else due

    def _say_unsupported(self, message: Message, out: Changes) -> None:
        text = self.settings.get("unsupported_message") or ""
        if text and not self.was_noticed and self.head["owner"] == "agent":
            self.was_noticed = True
            out.notices.append(self._notice("notice", None, text, message.provider_id, self.head["done_until"]))

    def _notice(self, kind: str, item_id: UUID | None, text: str, source: str | None, read_until: int) -> Row:
        return {
            "conversation_id": self.id,
            "channel": self.head["channel"],
            "kind": kind,
            "item_id": item_id,
            "text": text,
            "source_message": source,
            "read_until": read_until,
        }

    def _note_duplicate(self, duplicate: Row, message: Message, out: Changes) -> Row:
        text = self.settings.get("duplicate_message") or ""
        if text:
            shown = text.replace("{reference}", duplicate["reference"])
            notice = self._notice("duplicate", duplicate["id"], shown, message.provider_id, self.head["seq"])
            out.notices.append(notice)
        out.events.append(
            self._event(
                "item", duplicate["id"], None, None, f"repeat of {duplicate['reference']} ({duplicate['state']})"
            )
        )
        return duplicate

    def _event(self, entity: str, entity_id: UUID, source: str | None, target: str | None, why: str) -> Row:
        return {
            "organization_id": self.organization_id,
            "conversation_id": self.id,
            "item_id": entity_id if entity == "item" else None,
            "entity": entity,
            "entity_id": str(entity_id),
            "from_state": source,
            "to_state": target,
            "actor": "channel",
            "by": f"{self.head['channel']}:{self.head['account']}",
            "why": why,
            "trace_id": self.trace_id,
        }

    def finish(self, out: Changes) -> None:
        """Write down what the conversation looks like now."""
        if self.held is not None and self.held.get("touched"):
            out.extended_items.append(self._extension(self.held))
        if self.pending is not None and self.is_new_item:
            out.new_items.append(self.pending)
            out.events.append(self._event("item", self.pending["id"], None, "pending", "opened by a message"))
            if self.settings.get("ack_message") and not float(self.settings.get("ack_after_s") or 0):
                text = self.settings["ack_message"].replace("{reference}", self.pending["reference"])
                source = self.pending.get("source_message")
                out.notices.append(
                    self._notice("acknowledgement", self.pending["id"], text, source, self.head["done_until"])
                )
        elif self.pending is not None and self.pending.get("touched"):
            out.extended_items.append(self._extension(self.pending))
        out.hot.append(self._hot_row())
        out.touched.append(
            {
                "organization_id": self.organization_id,
                "id": self.id,
                "address": self._address,
                "last_customer_at": self._last_customer_at,
                "reopen": self._reopened,
            }
        )

    def _extension(self, item: Row) -> Row:
        keys = ("id", "last_seq", "class", "class_rule", "due_at", "deadline_at", "source_message")
        return {"organization_id": self.organization_id, **{key: item.get(key) for key in keys}}

    def _hot_row(self) -> Row:
        due_at = self.pending["due_at"] if self.pending is not None else None
        item_class = self.pending["class"] if self.pending is not None else None
        return {
            "organization_id": self.organization_id,
            "conversation_id": self.id,
            "seq": self.head["seq"],
            "last_in": self.head["last_in"],
            "done_until": self.head["done_until"],
            "due_at": due_at if self.head["owner"] == "agent" else None,
            "band": band(item_class) if item_class else self.head["band"],
            "rank": self._rank() if self.is_new_item else self.head["rank"],
            "revised": self.head["revised"],
        }

    def _rank(self) -> int:
        return int(self.now.timestamp() * 1000)


def _apply_early(message: Message, early: list[Row]) -> tuple[str, list[Row], datetime | None]:
    text, deleted_at = message.text, None
    revisions: list[Row] = []
    for change in early:
        if change["change"] == "revoke":
            deleted_at = change["sent_at"]
        else:
            revisions = revisions or [{"text": text, "at": None}]
            text = change["text"] or ""
            revisions.append({"text": text, "at": change["sent_at"].isoformat()})
    return text, revisions, deleted_at
