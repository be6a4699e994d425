"""How a turn ends in the database: committed, transferred, failed, given back, parked.

Idea: the common end (an answer) is one array statement in company; the rare ones are a transaction each, fence first.
Invariant: an ambiguous COMMIT is read back by attempt id, never repeated blindly; a retry leaves exactly one pending
item. Tested in ``tests/engine/test_turn.py`` and ``test_recovery.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from zaia_cli.agent.loop import TurnOutcome
from zaia_cli.core.errors import LeaseLostError, ModelError, UnavailableError, UncertainEffectError, ZaiaError
from zaia_cli.core.ids import new_id
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.lanes import Handover, hand_over, lock_conversation
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.requeue import absorb, requeue
from zaia_cli.store.database import Session

__all__ = ["TurnEnding"]

_READ_BACK_TRIES = 20

Row = Mapping[str, Any]


class TurnEnding:
    """Writes the outcomes of turns.

    Args:
        parts: The engine.
        committer: For the common end.
    """

    def __init__(self, parts: EngineParts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer

    async def commit(self, claim: Row, read_until: int, outcome: TurnOutcome) -> None:
        """Commit an answer (or a close, which says nothing).

        Raises:
            LeaseLostError: Another owner, or a person; nothing was written. When an edit or revoke changed what was
                read, the item goes round again instead.
        """
        text = outcome.text if outcome.kind == "answer" else ""
        row = {
            **self._fence(claim),
            "read_until": read_until,
            "result": {"outcome": outcome.kind, "text": text, "note": outcome.end.note if outcome.end else ""},
            "reply_id": new_id(),
            "text": text,
            "parts": self._parts.channels[claim["channel"]].split(text) if text else [],
            "source_message": claim["source_message"],
            "trace_id": claim["trace_id"],
            "worker": self._parts.worker,
            "resolve": outcome.kind == "close",
        }
        try:
            done = await self._committer.run("turn.commit", claim["token"], row)
        except UnavailableError:
            if await self._has_committed(claim):
                return
            done = await self._committer.run("turn.commit", claim["token"], row)
        if done is None:
            await self._go_round(claim)

    async def _has_committed(self, claim: Row) -> bool:
        for attempt in range(_READ_BACK_TRIES):
            try:
                rows = await self._parts.db.run("turn.commit_outcome", [self._fence(claim)])
                return bool(rows) and rows[0]["state"] == "succeeded"
            except UnavailableError:
                await asyncio.sleep(min(5.0, 0.1 * 2**attempt))
        raise UnavailableError("the database did not come back; the lease decides", code="database_unavailable")

    async def _go_round(self, claim: Row) -> None:
        async def work(session: Session) -> None:
            rows = await session.run("turn.fence", **self._where(claim), token=claim["token"])
            if not rows:
                raise LeaseLostError("somebody else has the conversation now")
            await self._end_attempt(
                session, claim, "yielded", {"code": "revised", "message": "what was read has changed"}
            )
            await requeue(
                session,
                claim,
                why="the customer changed what was read",
                actor="worker",
                by=self._parts.worker,
                counts=False,
            )

        await self._parts.db.with_retries(work)

    async def transfer(self, claim: Row, read_until: int, outcome: TurnOutcome) -> None:
        """Complete the item with its transfer and hand the conversation over, in one transaction."""
        assert outcome.end is not None
        assert outcome.end.department is not None
        department, note = outcome.end.department, outcome.end.note

        async def work(session: Session) -> None:
            head = await self._locked(session, claim)
            result = {"outcome": "transfer", "department": department.name, "note": note}
            await session.run(
                "turn.complete_item",
                organization_id=claim["organization_id"],
                item_id=claim["item_id"],
                result=result,
                read_until=read_until,
            )
            await session.run("turn.mark_read", **self._where(claim), read_until=read_until)
            await self._end_attempt(session, claim, "succeeded", None)
            await session.run("events.insert", [self._completed(claim, department.name)])
            await hand_over(
                session,
                self._parts.channels,
                claim["organization_id"],
                head,
                Handover(
                    reason=f"the agent transferred to {department.name}",
                    actor="worker",
                    by=self._parts.worker,
                    assignee=department.assignee,
                    department_id=department.id,
                    source_item=claim["item_id"],
                    note=note,
                ),
            )

        await self._parts.db.with_retries(work)

    async def fail(self, claim: Row, error: ZaiaError) -> None:
        """End an attempt with an error: another attempt later, or the human lane.

        Raises:
            LeaseLostError: The conversation is not ours; nothing was written.
        """
        recovery = self._parts.config.recovery
        described = {"code": error.code, "message": error.message}

        async def work(session: Session) -> None:
            head = await self._locked(session, claim)
            await self._end_attempt(session, claim, "failed", described)
            if isinstance(error, ModelError) and error.alerts:
                await session.run("events.raise_alerts", [self._provider_alert(claim, error)])
            if error.retryable and claim["attempts"] < recovery.max_attempts:
                await requeue(
                    session,
                    claim,
                    why=f"{error.code}: {error.message}",
                    actor="worker",
                    by=self._parts.worker,
                    error=described,
                    wait_s=_retry_wait_s(error, recovery.retry_delay_s),
                )
                return
            await hand_over(session, self._parts.channels, claim["organization_id"], head, self._failed(claim, error))

        await self._parts.db.with_retries(work)

    def _failed(self, claim: Row, error: ZaiaError) -> Handover:
        note = (
            "A side effect may have happened: check before acting again."
            if isinstance(error, UncertainEffectError)
            else ""
        )
        return Handover(
            reason=f"{error.code}: {error.message}",
            actor="worker",
            by=self._parts.worker,
            item_id=claim["item_id"],
            error={"code": error.code, "message": error.message},
            note=note,
        )

    async def give_back(self, claim: Row, why: str) -> None:
        """Return the item to pending without spending its attempt."""

        async def work(session: Session) -> None:
            await self._locked(session, claim)
            await self._end_attempt(session, claim, "yielded", {"code": "give_back", "message": why})
            await requeue(session, claim, why=why, actor="worker", by=self._parts.worker, counts=False)

        await self._parts.db.with_retries(work)

    async def wait_for_approval(self, claim: Row, outcome: TurnOutcome) -> None:
        """Park the item until a person decides about one call."""
        assert outcome.approval is not None
        step, ordinal, call = outcome.approval
        organization_id = claim["organization_id"]

        async def work(session: Session) -> None:
            head = await self._locked(session, claim)
            await self._end_attempt(session, claim, "yielded", {"code": "approval", "message": f"{call.name} waits"})
            approval_id = new_id()
            await session.run(
                "people.open_approval",
                organization_id=organization_id,
                id=approval_id,
                conversation_id=claim["conversation_id"],
                item_id=claim["item_id"],
                step=step,
                ordinal=ordinal,
                call_id=call.id,
                tool=call.name,
                arguments=call.arguments or {},
                assignee=head["settings"]["human_assignee"],
            )
            why = f"{call.name} needs a decision of {head['settings']['human_assignee']}"
            absorbed = await absorb(session, claim, actor="worker", by=self._parts.worker)
            await session.run(
                "turn.park",
                organization_id=organization_id,
                item_id=claim["item_id"],
                by=self._parts.worker,
                why=why,
                **absorbed,
            )
            alert = {
                "organization_id": organization_id,
                "kind": "approval",
                "dedupe_key": str(approval_id),
                "message": f"{claim['reference']}: {why}",
                "recipient": head["settings"]["human_assignee"],
                "data": {"approval": str(approval_id), "conversation": str(claim["conversation_id"])},
            }
            await session.run("events.raise_alerts", [alert])

        await self._parts.db.with_retries(work)

    async def nothing_left(self, claim: Row, read_until: int) -> None:
        """Cancel an item whose messages were all taken back."""

        async def work(session: Session) -> None:
            await self._locked(session, claim)
            await self._end_attempt(session, claim, "cancelled", None)
            await session.run(
                "turn.nothing_left",
                organization_id=claim["organization_id"],
                item_id=claim["item_id"],
                read_until=read_until,
                by=self._parts.worker,
            )

        await self._parts.db.with_retries(work)

    async def _locked(self, session: Session, claim: Row) -> dict[str, Any]:
        head = await lock_conversation(session, claim["organization_id"], claim["conversation_id"])
        if head["token"] != claim["token"]:
            raise LeaseLostError("somebody else has the conversation now")
        return head

    async def _end_attempt(self, session: Session, claim: Row, state: str, error: Mapping[str, Any] | None) -> None:
        await session.run(
            "turn.end_attempt",
            organization_id=claim["organization_id"],
            token=claim["token"],
            state=state,
            error=dict(error) if error else None,
        )

    def _completed(self, claim: Row, department: str) -> dict[str, Any]:
        return {
            **self._where(claim),
            "item_id": claim["item_id"],
            "entity": "item",
            "entity_id": str(claim["item_id"]),
            "from_state": "processing",
            "to_state": "completed",
            "actor": "worker",
            "by": self._parts.worker,
            "why": f"transfer to {department}",
            "trace_id": claim["trace_id"],
        }

    def _provider_alert(self, claim: Row, error: ModelError) -> dict[str, Any]:
        return {
            "organization_id": claim["organization_id"],
            "kind": f"model_{error.kind}",
            "dedupe_key": claim["model"],
            "message": f"{claim['model']}: {error.message}",
            "data": {"model": claim["model"], "status": error.status, "provider_code": error.provider_code},
        }

    @staticmethod
    def _where(claim: Row) -> dict[str, Any]:
        return {name: claim[name] for name in ("organization_id", "conversation_id")}

    @staticmethod
    def _fence(claim: Row) -> dict[str, Any]:
        return {name: claim[name] for name in ("organization_id", "conversation_id", "token", "item_id")}


def _retry_wait_s(error: ZaiaError, delay_s: float) -> float:
    asked_s = error.retry_after_s if isinstance(error, ModelError) else None
    return max(delay_s, asked_s or 0.0)
