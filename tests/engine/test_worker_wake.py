"""When the worker looks again: what becomes due between two statements is not left to the next poll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.world import World
from zaia_cli.engine.worker import Worker
from zaia_cli.store.database import Database


async def test_what_becomes_due_just_after_the_claim_looked_starts_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(turn={"coalesce_s": 60, "coalesce_max_s": 60}, queue={"poll_s": 600})
    original, looked = Database.run, asyncio.Semaphore(0)

    async def run(self: Database, name: str, /, *args: Any, **params: Any) -> Any:
        if name == "turn.next_due":
            await world.rows("UPDATE hot SET due_at = now() WHERE due_at > now() RETURNING 1")
            looked.release()
        return await original(self, name, *args, **params)

    monkeypatch.setattr(Database, "run", run)
    async with world.running(Worker(world.parts(), has_scheduler=False)):
        for _ in ("its own start", "the listener's"):
            await asyncio.wait_for(looked.acquire(), 10)
        await world.say("oi")
        await world.until("SELECT state FROM parts", "accepted", limit_s=10)
    assert world.sent() == ["Recebi: oi"]
