"""Many slow turns at once with few connections: nothing is held while a model thinks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.world import SECRET, World, open_world
from zaia_cli.store.database import Database

TURNS = 200
MODEL_S = 5.0


@pytest_asyncio.fixture
async def world(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    for name, value in (("TOKEN", "t"), ("SECRET", SECRET), ("VERIFY", "v")):
        monkeypatch.setenv(f"ZAIA_TEST_{name}", value)
    async with await Database.open(dsn, pool_size=4) as db, open_world(db, tmp_path) as opened:
        await opened.organization()
        yield opened


@pytest.mark.slow
async def test_two_hundred_slow_turns_run_at_once_with_four_connections(world: World) -> None:
    world.script(f'[[rules]]\ntext = "Recebi: {{burst}}"\ndelay_s = {MODEL_S}\n')
    world.configure(queue={"concurrency": TURNS, "per_organization": TURNS, "poll_s": 0.2})
    customers = [f"55119{number:08}" for number in range(TURNS)]
    await asyncio.gather(*(world.say("oi", customer=customer) for customer in customers))
    started = time.monotonic()
    worker = asyncio.create_task(world.work(limit_s=50))
    await world.until("SELECT count(*) FROM attempts WHERE state = 'running'", TURNS, limit_s=MODEL_S)
    await worker
    assert time.monotonic() - started < 3 * MODEL_S
    assert all(world.sent(customer) == ["Recebi: oi"] for customer in customers)
    await world.is_quiet()
