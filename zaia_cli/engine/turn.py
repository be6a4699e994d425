"""One claimed turn: load, run the loop, commit.

Idea: the claim is a row; this module turns it into an outcome and writes that under the fencing token. Invariant: what
is committed as read is what was loaded; a turn that lost its token writes nothing but the ledger. Tested in
``tests/engine/test_turn.py`` and ``test_cases.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from zaia_cli.agent.history import History, build_history
from zaia_cli.agent.loop import StepRecord, ToolRecord, TurnInput, TurnOutcome, run_turn
from zaia_cli.agent.prompt import RenderedPrompt, load_prompt
from zaia_cli.agent.tools import Department, choose_tools
from zaia_cli.core.chat import ModelRequest, ToolCall
from zaia_cli.core.errors import (
    ConfigError,
    GiveBackError,
    LeaseLostError,
    NotFoundError,
    PreconditionError,
    TurnError,
    UnavailableError,
)
from zaia_cli.engine.checkpoints import LeasedCheckpoints
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.ending import TurnEnding
from zaia_cli.engine.parts import EngineParts

__all__ = ["TurnJob"]

_log = logging.getLogger(__name__)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Loaded:
    history: History
    steps: tuple[StepRecord, ...]
    next_step: int
    departments: tuple[Department, ...]


class TurnJob:
    """Runs claims of one worker process.

    Args:
        parts: The engine.
        committer: Shared by all turns of the process.
        is_draining: Asked between steps; True gives the item back.
    """

    def __init__(self, parts: EngineParts, committer: Committer, is_draining: Callable[[], bool]) -> None:
        self._parts = parts
        self._committer = committer
        self._is_draining = is_draining
        self._ending = TurnEnding(parts, committer)

    async def run(self, claim: Row, claimed_at: float) -> None:
        """Run one claim to its end; every outcome is written, no exception leaves.

        Args:
            claim: Row of ``turn.claim``.
            claimed_at: Monotonic seconds when the claim was sent: the turn's deadline counts from there.
        """
        try:
            await self._run(claim, claimed_at)
        except LeaseLostError as error:
            _log.info("item %s: %s", claim["reference"], error.message)
        except GiveBackError:
            await self._quietly(claim, self._ending.give_back(claim, "the worker is stopping"))
        except (TurnError, UnavailableError) as error:
            await self._quietly(claim, self._ending.fail(claim, error))
        except ConfigError as error:
            missing = PreconditionError(error.message, code="configuration")
            await self._quietly(claim, self._ending.fail(claim, missing))
        except Exception as error:
            _log.exception("item %s: internal error", claim["reference"])
            bug = PreconditionError(f"internal error: {type(error).__name__}", code="internal")
            await self._quietly(claim, self._ending.fail(claim, bug))

    async def _quietly(self, claim: Row, ending: Any) -> None:
        try:
            await ending
        except LeaseLostError as error:
            _log.info("item %s: %s", claim["reference"], error.message)
        except Exception:
            _log.exception("item %s: its end could not be written; the lease will expire", claim["reference"])

    async def _run(self, claim: Row, claimed_at: float) -> None:
        loaded = await self._load(claim)
        read_until = loaded.history.read_until
        has_acted = any(tool.side_effect for step in loaded.steps for tool in step.tools.values())
        if loaded.history.unanswered_count == 0 and not has_acted:
            await self._ending.nothing_left(claim, read_until)
            return
        prompt = self._render(claim, loaded.departments)
        checkpoints = LeasedCheckpoints(
            self._parts, self._committer, claim, read_until, loaded.departments, prompt, self._is_draining
        )
        typing = asyncio.create_task(checkpoints.show_typing())
        try:
            turn = self._turn_input(claim, claimed_at, loaded, prompt)
            outcome = await run_turn(turn, self._parts.model, checkpoints)
        finally:
            typing.cancel()
        await self._end(claim, read_until, outcome)

    async def _end(self, claim: Row, read_until: int, outcome: TurnOutcome) -> None:
        if outcome.kind == "approval":
            await self._ending.wait_for_approval(claim, outcome)
        elif outcome.kind == "transfer":
            await self._ending.transfer(claim, read_until, outcome)
        else:
            await self._ending.commit(claim, read_until, outcome)

    async def _load(self, claim: Row) -> _Loaded:
        db = self._parts.db
        key = {name: claim[name] for name in ("organization_id", "conversation_id", "item_id", "done_until")}
        rows = await db.run("turn.history", [key], limit=self._parts.config.turn.history_messages)
        stored = await db.run("turn.stored_steps", [key])
        departments = await db.run("turn.departments", organizations=[claim["organization_id"]])
        mine = [row for row in stored if row["item_id"] == claim["item_id"] and not row["superseded"]]
        earlier: dict[UUID, list[StepRecord]] = defaultdict(list)
        for row in stored:
            if row["item_id"] != claim["item_id"]:
                earlier[row["item_id"]].append(_step(row))
        history = build_history(
            rows,
            done_until=claim["done_until"],
            stored_until=mine[-1]["read_until"] if mine else None,
            earlier_steps=earlier,
        )
        last = max((row["n"] for row in stored if row["item_id"] == claim["item_id"]), default=0)
        known = tuple(Department(row["id"], row["name"], row["assignee"]) for row in departments)
        return _Loaded(history, tuple(_step(row) for row in mine), last + 1, known)

    def _render(self, claim: Row, departments: tuple[Department, ...]) -> RenderedPrompt:
        try:
            prompt = load_prompt(self._parts.prompts_dir, claim["prompt"], claim["prompt_version"])
            now = datetime.now(ZoneInfo(claim["timezone"]))
            return prompt.render(
                {
                    "organization": {
                        "slug": claim["organization_id"],
                        "name": claim["organization_name"],
                        "timezone": claim["timezone"],
                        "departments": [department.name for department in departments],
                    },
                    "assistant": {"slug": claim["assistant"]},
                    "contact": {"name": claim["contact_name"] or ""},
                    "channel": claim["channel"],
                    "now": now.strftime("%d/%m/%Y %H:%M"),
                }
            )
        except (ConfigError, NotFoundError) as error:
            raise PreconditionError(error.message, code="prompt") from error

    def _turn_input(self, claim: Row, claimed_at: float, loaded: _Loaded, prompt: RenderedPrompt) -> TurnInput:
        limits = self._parts.config.turn
        try:
            tools = choose_tools(claim["tools"], self._parts.tools)
        except ConfigError as error:
            raise PreconditionError(error.message, code="tools") from error
        return TurnInput(
            request=ModelRequest(
                model=claim["model"],
                stable=prompt.stable,
                context=prompt.context,
                messages=(),
                tools=tuple(tool.spec for tool in tools.values()),
                max_tokens=limits.max_output_tokens,
            ),
            history=loaded.history.messages,
            later=loaded.history.later,
            steps=loaded.steps,
            next_step=loaded.next_step,
            fallbacks=tuple(claim["fallback_models"]),
            tools=tools,
            limits=limits,
            deadline=claimed_at + limits.deadline_s,
        )


def _step(row: Row) -> StepRecord:
    answer = row["answer"]
    calls = tuple(
        ToolCall(call["id"], call["name"], call["arguments"], call.get("error")) for call in answer["tool_calls"]
    )
    tools = {
        tool["ordinal"]: ToolRecord(
            tool["state"], tool["result"], tool["side_effect"], tool.get("approval"), tool.get("why") or ""
        )
        for tool in row["tools"]
    }
    return StepRecord(row["n"], answer["text"], calls, tools, row["tokens"])
