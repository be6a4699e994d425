"""Intake: from parsed events to numbered messages and work items, in one short transaction per company.

Idea: dedupe first, number the survivors, under the hot row's lock. Invariant: when ``accept`` returns, everything it
reports is committed; a repeated call with the same events changes nothing but the repeat counters. Tested in
``tests/engine/test_intake.py`` and ``test_cases.py``.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from zaia_cli.core.config import Config
from zaia_cli.core.inbound import (
    ContactMoved,
    Echo,
    Event,
    Ignored,
    Message,
    MessageEdit,
    MessageRevoke,
    Reaction,
    Rejected,
    StatusUpdate,
)
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.core.text import normalised
from zaia_cli.engine.contacts import resolve_contacts
from zaia_cli.engine.conversation_plan import Changes, ConversationPlan
from zaia_cli.engine.echoes import receive_echoes
from zaia_cli.engine.lanes import Handover, hand_over, lock_conversation
from zaia_cli.engine.message_changes import edit, reaction, revoke
from zaia_cli.engine.outbox import enqueue
from zaia_cli.engine.statuses import receive_statuses
from zaia_cli.store.database import Database, Session

__all__ = ["Intake", "IntakeReport"]

Row = dict[str, Any]
Inbound = Message | MessageEdit | MessageRevoke | Reaction | Echo | ContactMoved


@dataclass(slots=True)
class IntakeReport:
    """What became of a payload: counts of items, and one row per message that is new or repeated."""

    received: int = 0
    accepted: int = 0
    duplicates: int = 0
    statuses: int = 0
    ignored: int = 0
    rejected: list[Row] = field(default_factory=list)
    items: list[Row] = field(default_factory=list)


class Intake:
    """The only way in.

    Args:
        db: The database.
        config: Coalescing, staleness, dedupe window.
        channels: Splitters for acknowledgements and notices.
    """

    def __init__(self, db: Database, config: Config, channels: Mapping[str, OutboundChannel]) -> None:
        self._db = db
        self._config = config
        self._channels = channels

    async def accept(self, events: Sequence[Event]) -> IntakeReport:
        """Take in everything of one payload.

        Args:
            events: In the payload's order.

        Returns:
            The report, after the commit.

        Raises:
            UnavailableError: The database is away: answer 503, the channel redelivers; what was committed is deduped
            then.
        """
        report = IntakeReport(received=len(events))
        known = [event for event in events if not isinstance(event, Rejected | Ignored)]
        report.ignored = sum(isinstance(event, Ignored) for event in events)
        routes = await self._routes(known)
        unrouted = [
            Rejected(
                event.channel,
                f"{event.channel}:{event.account}",
                "no organization has this account",
                getattr(event, "raw", None),
                event.account,
            )
            for event in known
            if (event.channel, event.account) not in routes
        ]
        await self._reject([*(e for e in events if isinstance(e, Rejected)), *unrouted], report)
        by_company: dict[str, list[Any]] = defaultdict(list)
        for event in known:
            if route := routes.get((event.channel, event.account)):
                by_company[route["organization_id"]].append(event)
        for organization_id, mine in by_company.items():
            inbound = [event for event in mine if not isinstance(event, StatusUpdate)]
            statuses = [event for event in mine if isinstance(event, StatusUpdate)]
            if inbound:
                partial = await self._db.with_retries(
                    lambda session, org=organization_id, rows=inbound: self._take(session, org, rows, routes)  # type: ignore[misc]
                )
                report.accepted += partial.accepted
                report.duplicates += partial.duplicates
                report.items.extend(partial.items)
            report.statuses += await receive_statuses(self._db, self._channels, organization_id, statuses)
        if routes:
            await self._db.run("intake.touch_account", list(routes.values()))
        if report.accepted:
            await self._db.notify()
        return report

    async def _routes(self, events: Sequence[Any]) -> dict[tuple[str, str], Row]:
        keys = {(event.channel, event.account) for event in events}
        if not keys:
            return {}
        rows = await self._db.run("intake.routes", [{"channel": c, "account": a} for c, a in sorted(keys)])
        return {(row["channel"], row["account"]): row for row in rows}

    async def _reject(self, rejected: Sequence[Rejected], report: IntakeReport) -> None:
        for index, item in enumerate(rejected):
            report.rejected.append({"index": index, "path": item.path, "reason": item.reason})
        if rejected:
            await self._db.run(
                "intake.insert_rejected",
                [
                    {"channel": r.channel, "account": r.account, "path": r.path, "reason": r.reason, "raw": r.raw}
                    for r in rejected
                ],
            )

    async def _take(
        self, session: Session, organization_id: str, events: Sequence[Inbound], routes: Mapping[tuple[str, str], Row]
    ) -> IntakeReport:
        report = IntakeReport()
        fresh = await self._dedupe(session, organization_id, events, report)
        if not fresh:
            return report
        contacts = await resolve_contacts(session, organization_id, fresh, routes)
        report.accepted = len(fresh)
        grouped: dict[UUID, list[Inbound]] = defaultdict(list)
        for event in fresh:
            if isinstance(event, ContactMoved):
                await session.run(
                    "intake.move_contact",
                    organization_id=organization_id,
                    contact_id=contacts.contact_of(event.new),
                    channel=event.channel,
                    address=event.new.address,
                )
            else:
                grouped[contacts.conversation_of(event)].append(event)
        changes = await self._plan(session, organization_id, grouped, routes)
        await self._write(session, organization_id, changes)
        report.items = changes.report
        await receive_echoes(session, self._channels, organization_id, grouped)
        return report

    async def _dedupe(
        self, session: Session, organization_id: str, events: Sequence[Inbound], report: IntakeReport
    ) -> list[Inbound]:
        keys = [(e.channel, e.account, type(e).__name__.lower(), e.provider_id) for e in events]
        rows = [
            {"organization_id": organization_id, "channel": c, "account": a, "kind": kind, "provider_id": p}
            for c, a, kind, p in dict.fromkeys(keys)
            if p is not None
        ]
        new = {
            (row["channel"], row["account"], row["kind"], row["provider_id"])
            for row in (await session.run("intake.insert_receipts", rows) if rows else ())
        }
        fresh, repeats = [], Counter[tuple[str, str, str, Any]]()
        for key, event in zip(keys, events, strict=True):
            if key[3] is None or key in new:
                fresh.append(event)
                new.discard(key)
            else:
                repeats[key] += 1
        if repeats:
            report.duplicates = repeats.total()
            await session.run(
                "intake.count_repeats",
                [
                    {
                        "organization_id": organization_id,
                        "channel": c,
                        "account": a,
                        "kind": k,
                        "provider_id": p,
                        "n": n,
                    }
                    for (c, a, k, p), n in repeats.items()
                ],
            )
        return fresh

    async def _plan(
        self,
        session: Session,
        organization_id: str,
        grouped: Mapping[UUID, Sequence[Inbound]],
        routes: Mapping[tuple[str, str], Row],
    ) -> Changes:
        changes = Changes()
        ids = [{"conversation_id": conversation_id} for conversation_id in grouped]
        if not ids:
            return changes
        heads = await session.run("intake.lock_conversations", ids, organization_id=organization_id)
        items = await session.run("intake.open_items", ids, organization_id=organization_id)
        early = await self._early_changes(session, organization_id, grouped)
        duplicates, request_keys = await self._find_repeats(session, organization_id, heads, grouped)
        trace_id = uuid4().hex
        noticed = await self._recently_noticed(session, organization_id, grouped)
        for head in heads:
            conversation_id = head["conversation_id"]
            settings = routes[head["channel"], head["account"]]["settings"]
            mine = [item for item in items if item["conversation_id"] == conversation_id]
            plan = ConversationPlan(organization_id, head, mine, settings, self._config, trace_id)
            plan.was_noticed = conversation_id in noticed
            await self._load_targets(session, organization_id, plan, grouped[conversation_id])
            for event in grouped[conversation_id]:
                if isinstance(event, Message):
                    key = request_keys.get(id(event))
                    plan.add_message(event, early.get(event.provider_id, []), duplicates.get(id(event)), key, changes)
                elif isinstance(event, MessageEdit):
                    edit(plan, event, changes)
                elif isinstance(event, MessageRevoke):
                    revoke(plan, event, changes)
                elif isinstance(event, Reaction):
                    reaction(plan, event, changes)
            plan.finish(changes)
        return changes

    async def _early_changes(
        self, session: Session, organization_id: str, grouped: Mapping[UUID, Sequence[Inbound]]
    ) -> dict[Any, list[Row]]:
        rows = [
            {
                "organization_id": organization_id,
                "channel": e.channel,
                "account": e.account,
                "original_id": e.provider_id,
            }
            for events in grouped.values()
            for e in events
            if isinstance(e, Message) and e.provider_id
        ]
        early: dict[Any, list[Row]] = defaultdict(list)
        for row in sorted(
            await session.run("intake.take_changes", rows) if rows else (), key=lambda row: row["sent_at"]
        ):
            early[row["original_id"]].append(row)
        return early

    async def _recently_noticed(
        self, session: Session, organization_id: str, grouped: Mapping[UUID, Sequence[Inbound]]
    ) -> set[UUID]:
        rows = [
            {"conversation_id": conversation_id}
            for conversation_id, events in grouped.items()
            if any(isinstance(event, Message) and event.kind == "unsupported" for event in events)
        ]
        if not rows:
            return set()
        found = await session.run("intake.recent_notices", rows, organization_id=organization_id)
        return {row["conversation_id"] for row in found}

    async def _find_repeats(
        self, session: Session, organization_id: str, heads: Sequence[Row], grouped: Mapping[UUID, Sequence[Inbound]]
    ) -> tuple[dict[int, Row], dict[int, str]]:
        """Find earlier items for messages without an id, under the lock, so that two equal requests meet."""
        keys: dict[int, str] = {}
        for head in heads:
            for event in grouped[head["conversation_id"]]:
                if isinstance(event, Message) and event.provider_id is None:
                    basis = f"{head['contact_id']}\n{event.thread}\n{normalised(event.text)}"
                    keys[id(event)] = hashlib.sha256(basis.encode("utf-8", "replace")).hexdigest()
        if not keys:
            return {}, {}
        rows = await session.run(
            "intake.find_requests",
            [{"request_key": key} for key in set(keys.values())],
            organization_id=organization_id,
            window_s=self._config.intake.dedupe_window_s,
        )
        found = {row["request_key"]: row for row in rows}
        return {name: found[key] for name, key in keys.items() if key in found}, keys

    async def _load_targets(
        self, session: Session, organization_id: str, plan: ConversationPlan, events: Sequence[Inbound]
    ) -> None:
        targets = [e.original_id for e in events if isinstance(e, MessageEdit | MessageRevoke)]
        if not targets:
            return
        known = await session.run(
            "intake.find_messages",
            [{"conversation_id": plan.id, "provider_id": target} for target in targets],
            organization_id=organization_id,
        )
        unanswered = await session.run(
            "intake.unanswered",
            [{"conversation_id": plan.id, "done_until": plan.head["done_until"]}],
            organization_id=organization_id,
        )
        plan.load(known, unanswered)

    async def _write(self, session: Session, organization_id: str, changes: Changes) -> None:
        for name, rows in (
            ("intake.update_hot", changes.hot),
            ("intake.save_items", changes.new_items),
            ("intake.extend_items", changes.extended_items),
            ("intake.cancel_items", changes.cancelled_items),
            ("intake.insert_messages", changes.messages),
            ("intake.revise_messages", changes.revised),
            ("intake.supersede_finals", changes.stale_steps),
            ("intake.insert_changes", changes.changes),
            ("intake.touch_conversations", changes.touched),
            ("events.insert", changes.events),
            ("events.raise_alerts", changes.alerts),
        ):
            if rows:
                await session.run(name, rows)
        await enqueue(session, self._channels, [{"organization_id": organization_id, **row} for row in changes.notices])
        for conversation_id, item_id in changes.stale.items():
            head = await lock_conversation(session, organization_id, conversation_id)
            why = "a message arrived too late to be answered as new"
            error = {"code": "too_late", "message": why}
            stale = Handover(why, "channel", head["channel"], item_id=item_id, error=error, tell_customer=False)
            await hand_over(session, self._channels, organization_id, head, stale)
