"""The worker: claims turns, sends replies, keeps time; any number of them, anywhere.

Idea: three loops wake each other in process, ``LISTEN`` wakes them across processes, polling stands behind both.
Invariant: when ``run`` returns after ``stop``, nothing of this worker is leased or sending. Tested in
``tests/engine/test_main_job.py`` and, with real processes, ``tests/faults``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from zaia_cli.core.errors import UnavailableError
from zaia_cli.engine.alerts import send_due_alerts
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.delivery import Delivery
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.scheduler import Scheduler
from zaia_cli.engine.turn import TurnJob

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

_AWAY_MAX_S = 10.0
_JUST_DUE_S = 0.5
_JUST_DUE_WAIT_S = 0.02


class Worker:
    """One worker process.

    Args:
        parts: The engine.
        has_scheduler: False leaves recovery, aging and alerts to other workers.
        only_channel: Serve this channel kind alone; None serves all.
    """

    def __init__(self, parts: EngineParts, *, has_scheduler: bool = True, only_channel: str | None = None) -> None:
        self._parts = parts
        self._channel = only_channel
        self._has_scheduler = has_scheduler
        self._stopping = asyncio.Event()
        self._wake_turns = asyncio.Event()
        self._wake_sends = asyncio.Event()
        self._turns: dict[asyncio.Task[None], str] = {}
        self._is_warm = False
        self._committer = Committer(parts.db, worker=parts.worker)
        self._job = TurnJob(parts, self._committer, self._stopping.is_set)
        self._delivery = Delivery(
            parts, self._committer, parts.config.queue.concurrency, changed=self._wake_sends, only_channel=only_channel
        )
        self._scheduler = Scheduler(parts)

    def stop(self) -> None:
        """Drain: claim nothing more, give back between steps, finish what is being sent."""
        self._stopping.set()
        self._wake_turns.set()
        self._wake_sends.set()

    def wake(self) -> None:
        """There may be new work."""
        self._wake_turns.set()
        self._wake_sends.set()

    async def run(self, *, until_idle: bool = False, for_s: float | None = None) -> None:
        """Work until stopped.

        Args:
            until_idle: Also stop when nothing is pending, leased or waiting for a retry; people and approvals aside.
            for_s: Also stop after so many seconds.
        """
        loops: list[Callable[[], Awaitable[float]]] = [self._claim, self._send, self._beat]
        if self._has_scheduler:
            loops.append(self._keep_time)
        events: dict[Any, asyncio.Event] = {self._claim: self._wake_turns, self._send: self._wake_sends}
        tasks = [asyncio.create_task(self._loop(work, events.get(work))) for work in loops]
        listener = asyncio.create_task(self._listen())
        warming = asyncio.create_task(self._warm_up())
        try:
            if until_idle:
                tasks.append(asyncio.create_task(self._stop_when_idle()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(for_s):
                    await self._stopping.wait()
            self.stop()
            await asyncio.gather(*tasks)
            await self._finish()
        finally:
            self.stop()
            for task in (*tasks, listener, warming):
                task.cancel()
            await asyncio.gather(*tasks, listener, warming, return_exceptions=True)

    async def _finish(self) -> None:
        while self._turns:
            await asyncio.gather(*self._turns, return_exceptions=True)
        with contextlib.suppress(UnavailableError):
            await self._delivery.start_due()
        await self._delivery.finish()
        with contextlib.suppress(UnavailableError):
            if self._has_scheduler:
                await send_due_alerts(self._parts.db, self._parts.config.alerts.sinks)
            await self._parts.db.run("scheduler.goodbye", worker=self._parts.worker)

    async def _loop(self, work: Callable[[], Awaitable[float]], wake: asyncio.Event | None) -> None:
        """Repeat ``work``, which returns how long to wait unless woken; an absent database is waited for."""
        away_s = 0.1
        while not self._stopping.is_set():
            if wake is not None:
                wake.clear()
            try:
                wait_s = await work()
                away_s = 0.1
            except UnavailableError as error:
                _log.warning("database away (%s); trying again in %.1f s", error.message, away_s)
                wait_s, away_s = away_s, min(_AWAY_MAX_S, away_s * 2)
            except Exception:
                _log.exception("a worker loop failed; it goes on")
                wait_s = self._parts.config.queue.poll_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await (wake or self._stopping).wait()

    async def _warm_up(self) -> None:
        await self._parts.warm_up()
        self._is_warm = True
        self._wake_turns.set()

    async def _claim(self) -> float:
        if not self._is_warm:
            return self._parts.config.queue.poll_s
        queue = self._parts.config.queue
        free = queue.concurrency - len(self._turns)
        if free <= 0:
            return queue.poll_s
        load = Counter(self._turns.values())
        full = [organization for organization, turns in load.items() if turns >= queue.per_organization]
        room = min((queue.per_organization - turns for o, turns in load.items() if o not in full), default=free)
        limit = max(1, min(free, room, queue.per_organization))
        claimed_at = time.monotonic()
        rows = await self._parts.db.run(
            "turn.claim",
            worker=self._parts.worker,
            limit=limit,
            ttl_s=self._parts.config.lease.ttl_s,
            full=full,
            channel=self._channel,
        )
        empty = [row for row in rows if row["item_id"] is None]
        if empty:
            await self._parts.db.run("turn.unlease", empty)
        for row in rows:
            if row["item_id"] is not None:
                self._start(row, claimed_at)
        if len(rows) == limit:
            return 0.0
        return await self._until_due("turn.next_due")

    def _start(self, row: Mapping[str, Any], claimed_at: float) -> None:
        task = asyncio.create_task(self._job.run(row, claimed_at))
        self._turns[task] = row["organization_id"]
        task.add_done_callback(self._turn_done)

    def _turn_done(self, task: asyncio.Task[None]) -> None:
        self._turns.pop(task, None)
        self.wake()

    async def _send(self) -> float:
        started = await self._delivery.start_due()
        return 0.0 if started else await self._until_due("outbox.next_due")

    async def _until_due(self, statement: str) -> float:
        rows = await self._parts.db.run(statement)
        wait_s, poll_s = rows[0]["wait_s"], self._parts.config.queue.poll_s
        if wait_s is None or wait_s < -_JUST_DUE_S:
            return poll_s  # what has been due for long is not ours to take: its company is full, its account is closed
        return min(poll_s, wait_s + 0.002 if wait_s > 0 else _JUST_DUE_WAIT_S)

    async def _beat(self) -> float:
        await self._parts.db.run(
            "scheduler.heartbeat",
            worker=self._parts.worker,
            in_flight=len(self._turns),
            draining=self._stopping.is_set(),
        )
        return 5.0

    async def _keep_time(self) -> float:
        await self._scheduler.run_once()
        await send_due_alerts(self._parts.db, self._parts.config.alerts.sinks)
        return self._parts.config.queue.poll_s

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._parts.db.listen()) as news:
            async for _ in news:
                self.wake()

    async def _stop_when_idle(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(UnavailableError):
                rows = await self._parts.db.run("scheduler.unfinished")
                if not self._turns and not self._delivery.in_flight and not rows[0]["items"] and not rows[0]["parts"]:
                    self.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._stopping.wait()
