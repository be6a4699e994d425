"""Delivery: the outbox goes out over HTTP, one send per claim.

Idea: claim commits the delivery before any network call; the outcome decides the part's next state. Invariant: an
ambiguous send becomes ``unknown`` and is never repeated from here; a process that wakes up late does not send. Tested
in ``tests/engine/test_delivery_cases.py`` and ``test_reconcile.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from zaia_cli.core.outbound import OutboundPart, SendResult
from zaia_cli.engine.accounts import send_account
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.failures import part_failed
from zaia_cli.engine.gates import gate_name
from zaia_cli.engine.lanes import lock_conversation
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.statuses import apply_statuses
from zaia_cli.store.database import Session

__all__ = ["Delivery"]

_log = logging.getLogger(__name__)

Row = Mapping[str, Any]

_WINDOW_S = 86_400
_FIRST_BACKOFF_S = 1.0
_PAIR_WAITS_S = (1.0, 4.0, 16.0, 64.0)
_GATE_CLASSES = frozenset({"slow_number", "slow_number_and_alert", "slow_app", "slow_waba"})
_NO_TOKEN = SendResult("not_sent", error_code="no_token", error="this process does not have the account's token")
_NO_TOKEN_WAIT_S = 30.0


class Delivery:
    """Sends what is due.

    Args:
        parts: The engine.
        committer: Groups outcomes.
        concurrency: Sends in flight.
        changed: Set whenever a send has reported.
        only_channel: Serve this channel kind alone; None serves all.
    """

    def __init__(
        self,
        parts: EngineParts,
        committer: Committer,
        concurrency: int,
        *,
        changed: asyncio.Event,
        only_channel: str | None = None,
    ) -> None:
        self._parts = parts
        self._committer = committer
        self._concurrency = concurrency
        self._changed = changed
        self._channel = only_channel
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Sends that have not reported yet."""
        return len(self._sending)

    async def start_due(self) -> int:
        """Claim and start what may go now; returns how many. Outcomes are written by the tasks themselves."""
        free = self._concurrency - len(self._sending)
        if free <= 0:
            return 0
        started = time.monotonic()
        delivery = self._parts.config.delivery
        rows = await self._parts.db.run(
            "outbox.claim",
            worker=self._parts.worker,
            limit=free,
            window_s=_WINDOW_S,
            unknown_after_s=delivery.unknown_after_s,
            channel=self._channel,
        )
        for row in rows:
            task = asyncio.create_task(self._deliver(row, started + delivery.unknown_after_s / 2))
            self._sending.add(task)
            task.add_done_callback(self._done)
        return len(rows)

    async def finish(self) -> None:
        """Wait for the sends in flight."""
        while self._sending:
            await asyncio.gather(*self._sending, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a delivery's outcome could not be written: %s; it becomes unknown", error)

    async def _deliver(self, row: Row, sends_before: float) -> None:
        result = await self._send(row, sends_before)
        outcome = self._outcome(row, result)
        if result.error_class == "human" or result.error_class in _GATE_CLASSES:
            await self._close_gate(row, result)  # before the part waits again: another send would slip through
        if result.error_code == _NO_TOKEN.error_code:
            await self._parts.db.run("events.raise_alerts", [_no_token_alert(row)])
        written = await self._write(row, outcome)
        if written is not None:
            await self._follow_up(row, written)

    async def _send(self, row: Row, sends_before: float) -> SendResult:
        account = send_account(row)
        if account is None:
            return _NO_TOKEN
        part = OutboundPart(
            address=row["address"],
            text=row["text"],
            opaque_id=row["opaque_id"],
            reply_to=row["source_message"] if row["n"] == 1 and row["kind"] == "answer" else None,
        )
        try:
            return await self._parts.channels[row["channel"]].send(
                account, part, may_send=lambda: time.monotonic() < sends_before
            )
        except Exception as error:
            _log.exception("channel %s raised while sending", row["channel"])
            return SendResult("unknown", error=f"{type(error).__name__} while sending")

    def _outcome(self, row: Row, result: SendResult) -> dict[str, Any]:
        """Decide the part's next state: ``state``, ``wait_s``, and whether the try counts."""
        error = {"code": result.error_code, "class": result.error_class, "message": result.error}
        base = {
            "organization_id": row["organization_id"],
            "reply_id": row["reply_id"],
            "n": row["n"],
            "delivery": row["delivery"],
            "outcome": result.outcome,
            "provider_message_id": result.provider_message_id,
            "error": None if result.outcome == "accepted" else error,
            "wait_s": 0.0,
            "counts": True,
        }
        if result.outcome == "accepted":
            return base | {"state": "accepted"}
        if result.outcome == "unknown":
            return base | {"state": "unknown"}
        if result.error_code == _NO_TOKEN.error_code:
            return base | {"state": "pending", "wait_s": _NO_TOKEN_WAIT_S, "counts": False}
        is_last = row["attempts"] >= self._parts.config.delivery.max_attempts
        backoff_s = result.retry_after_s or _FIRST_BACKOFF_S * 4 ** (row["attempts"] - 1)
        if result.outcome == "not_sent" or result.error_class == "retry":
            return base | {"state": "failed" if is_last else "pending", "wait_s": backoff_s}
        if result.error_class == "slow_pair":
            wait_s = result.retry_after_s or _PAIR_WAITS_S[min(row["waits"], len(_PAIR_WAITS_S) - 1)]
            return base | {"state": "pending", "wait_s": wait_s, "counts": False}
        if result.error_class == "human" or result.error_class in _GATE_CLASSES:
            return base | {"state": "pending", "counts": False}
        if result.error_class in ("retry_after_reconcile", "unknown_outcome_do_not_resend"):
            return base | {"state": "unknown"}
        return base | {"state": "failed"}

    async def _write(self, row: Row, outcome: dict[str, Any]) -> Row | None:
        return await self._committer.insist("outbox.finish", f"{row['reply_id']}:{row['n']}", outcome)

    async def _follow_up(self, row: Row, written: Row) -> None:
        organization_id = row["organization_id"]
        if written["has_statuses"]:

            async def late_statuses(session: Session) -> None:
                ids = {written["provider_message_id"]}
                await apply_statuses(session, self._parts.channels, organization_id, ids)

            await self._parts.db.with_retries(late_statuses)
        if written["asked"] == "failed":

            async def failed(session: Session) -> None:
                await lock_conversation(session, organization_id, row["conversation_id"])
                part = {**written, "kind": row["kind"]}
                await part_failed(session, self._parts.channels, part, actor="worker", by=self._parts.worker)

            await self._parts.db.with_retries(failed)

    async def _close_gate(self, row: Row, result: SendResult) -> None:
        """Close the account: until a person repairs it, or for as long as the channel asked."""
        organization_id = row["organization_id"]
        needs_person = result.error_class == "human"
        name = gate_name(row["channel"], row["account"])
        wait_s = None if needs_person else result.retry_after_s or 4.0 ** min(row["waits"] + 1, 4)
        reason = f"{result.error_code}: {result.error}"

        async def work(session: Session) -> None:
            await session.run("gates.close", organization_id=organization_id, name=name, reason=reason, wait_s=wait_s)
            if needs_person or result.error_class == "slow_number_and_alert":
                alert = {
                    "organization_id": organization_id,
                    "kind": "channel_blocked",
                    "dedupe_key": name,
                    "message": f"{name} is closed: {reason}",
                    "data": {"gate": name},
                }
                await session.run("events.raise_alerts", [alert])

        await self._parts.db.with_retries(work)


def _no_token_alert(row: Row) -> dict[str, Any]:
    name = gate_name(row["channel"], row["account"])
    return {
        "organization_id": row["organization_id"],
        "kind": "no_token",
        "dedupe_key": name,
        "message": f"{name}: a worker runs without {row['token_env']}; its replies wait for one that has it",
        "data": {"variable": row["token_env"]},
    }
