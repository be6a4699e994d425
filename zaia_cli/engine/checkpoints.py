"""What happens between the loop's moves in production: fenced writes, the journal, the ledger.

Idea: each method is one array statement through the committer. Invariant: zero rows means another owner: the turn stops
with ``LeaseLostError`` and has written nothing, except the ledger. Tested in ``tests/engine/test_turn.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from zaia_cli.agent.ask import CallRecord
from zaia_cli.agent.loop import StepRecord, ToolRecord
from zaia_cli.agent.prompt import RenderedPrompt
from zaia_cli.agent.tools import Department, ToolContext
from zaia_cli.core.chat import ModelReply, ToolCall
from zaia_cli.core.errors import GiveBackError, LeaseLostError
from zaia_cli.core.prices import cost_usd
from zaia_cli.engine.accounts import send_account
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.parts import EngineParts

__all__ = ["LeasedCheckpoints"]

_MAX_YIELDS = 20


class LeasedCheckpoints:
    """Checkpoints of one attempt.

    Args:
        parts: The engine.
        committer: Groups the statements of all turns of the process.
        claim: Row of ``turn.claim``.
        read_until: Largest inbound ``seq`` that was loaded.
        departments: Of the organization.
        prompt: As rendered; its hash goes into the ledger.
        is_draining: Whether the worker is stopping.
    """

    def __init__(
        self,
        parts: EngineParts,
        committer: Committer,
        claim: Mapping[str, Any],
        read_until: int,
        departments: tuple[Department, ...],
        prompt: RenderedPrompt,
        is_draining: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._committer = committer
        self._claim = claim
        self._read_until = read_until
        self._departments = departments
        self._prompt = prompt
        self._is_draining = is_draining
        self._fence = {name: claim[name] for name in ("organization_id", "conversation_id", "token", "item_id")}

    async def show_typing(self) -> None:
        """Show that an answer is being written; best effort."""
        claim = self._claim
        if claim["source_message"] and claim["channel"] == "whatsapp":
            account = send_account(claim)
            if account is not None:
                await self._parts.channels["whatsapp"].typing(account, claim["source_message"])

    async def between_steps(self) -> None:
        """Stop when somebody else owns the conversation, or when the worker drains."""
        if self._is_draining() and self._claim["yields"] < _MAX_YIELDS:
            raise GiveBackError("the worker is stopping")
        row = await self._committer.run("turn.check", self._claim["token"], self._fence)
        if row is None or row["owner"] != "agent" or not row["is_processing"]:
            raise LeaseLostError("somebody else has the conversation now")

    async def record_call(self, step: int, record: CallRecord) -> None:
        """Write the ledger row of one model request, whoever owns the conversation."""
        usage = record.reply.usage if record.reply else record.error.usage if record.error else None
        price = self._parts.prices.lookup(record.model, datetime.now(UTC).date())
        cost = cost_usd(usage, price)
        claim = self._claim
        row = {
            **self._fence,
            "attempt_id": claim["token"],
            "step": step,
            "try": record.number,
            "assistant": claim["assistant"],
            "prompt": claim["prompt"],
            "prompt_version": claim["prompt_version"],
            "prompt_sha256": self._prompt.stable_sha256,
            "model": record.model,
            "provider_model": record.reply.provider_model if record.reply else None,
            "purpose": "answer",
            "outcome": record.outcome,
            "error": record.error.message if record.error else None,
            "latency_ms": record.latency_ms,
            "usage_estimated": usage is not None and usage.is_estimated,
            "cost_usd": cost,
            "price": asdict(price) if price and cost is not None else None,
        }
        if usage is not None:
            buckets = ("input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
            row |= {f"{bucket}_tokens": getattr(usage, f"{bucket}_tokens") for bucket in buckets}
        await self._committer.insist("turn.record_calls", f"{claim['token']}:{step}:{record.number}", row)

    async def save_step(self, step: StepRecord, model: str, reply: ModelReply) -> None:
        """Save the model's answer before its tools run; renews the lease."""
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments, "error": c.error} for c in step.tool_calls]
        await self._fenced(
            "turn.save_steps",
            {
                **self._fence,
                "ttl_s": self._parts.config.lease.ttl_s,
                "n": step.n,
                "model": model,
                "answer": {"text": step.text, "tool_calls": calls, "finish": reply.finish},
                "read_until": self._read_until,
                "tokens": step.tokens,
                "latency_ms": reply.latency_ms,
            },
        )

    async def start_tool(self, step: int, ordinal: int, call: ToolCall, *, side_effect: bool) -> None:
        """Mark a call as started, before it acts."""
        row = {
            **self._fence,
            "step": step,
            "ordinal": ordinal,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "side_effect": side_effect,
        }
        if await self._committer.run("turn.start_tools", self._claim["item_id"], row) is None:
            raise LeaseLostError("the tool call is not ours to make")

    async def finish_tool(self, step: int, ordinal: int, record: ToolRecord) -> None:
        """Keep a result, whoever owns the conversation: the act has happened."""
        row = {**self._fence, "step": step, "ordinal": ordinal, "state": record.state, "result": record.result}
        await self._committer.insist("turn.finish_tools", self._claim["item_id"], row)

    def tool_context(self, step: int, ordinal: int) -> ToolContext:
        """What a tool may know: its own conversation and company."""
        claim = self._claim
        key = f"{claim['item_id']}:{step}:{ordinal}"
        return ToolContext(claim["organization_id"], claim["conversation_id"], self._departments, key)

    async def _fenced(self, name: str, row: Mapping[str, Any]) -> None:
        if await self._committer.run(name, self._claim["token"], row) is None:
            raise LeaseLostError("somebody else has the conversation now")
