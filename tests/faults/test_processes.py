"""Real worker processes killed, frozen and stopped at the worst moments: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.workspace import WorkerWorkspace
from tests.engine.world import CUSTOMER, ECHO_SCRIPT, World, open_world, whatsapp
from zaia_cli.store.database import Database
from zaia_cli.store.embedded import embedded_server
from zaia_cli.store.migrate import upgrade

SLOW = '[[rules]]\ntext = "Recebi: {burst}"\ndelay_s = 8\n'
LEASE_S = 121


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def finish(world: World, workspace: WorkerWorkspace) -> None:
    """Let a fresh process do what is left."""
    workspace.script(ECHO_SCRIPT)
    with workspace.worker("--drain") as process:
        _, errors = await asyncio.to_thread(process.communicate, timeout=40)
        assert process.returncode == 0, errors


@pytest.mark.slow
async def test_a_worker_killed_in_the_middle_of_a_model_call(world: World, workspace: WorkerWorkspace) -> None:
    workspace.script(SLOW)
    await world.say("oi", "tudo bem?")
    with workspace.worker() as process:
        await world.until("SELECT state FROM attempts", "running", limit_s=20)
        kill(process)
    await world.travel(LEASE_S)
    await finish(world, workspace)
    assert world.sent() == ["Recebi: oi | tudo bem?"]
    attempts = await world.rows("SELECT state, error->>'code' AS code FROM attempts ORDER BY n")
    assert [(row["state"], row["code"]) for row in attempts] == [("failed", "lease_expired"), ("succeeded", None)]
    calls = await world.rows("SELECT outcome, cost_usd IS NULL AS is_unknown FROM model_calls ORDER BY at")
    assert [(row["outcome"], row["is_unknown"]) for row in calls] == [("lost", True), ("ok", False)]
    await world.is_quiet()


@pytest.mark.slow
async def test_a_worker_killed_after_the_channel_accepted_and_before_it_wrote_so(
    world: World, workspace: WorkerWorkspace
) -> None:
    world.graph.plan(nth=1, answer_delay_s=20)
    await world.say("oi")
    with workspace.worker() as process:
        async with asyncio.timeout(20):
            while not world.graph.sends:  # noqa: ASYNC110 - the simulator's own list is the truth
                await asyncio.sleep(0.02)
        kill(process)
    assert await world.one("SELECT state FROM parts") == "sending"
    (send,) = world.graph.sends
    await world.travel(130)
    await finish(world, workspace)
    assert await world.one("SELECT state FROM parts") == "unknown"
    row = {
        "id": send["message_id"],
        "status": "delivered",
        "timestamp": str(int(time.time())),
        "recipient_id": CUSTOMER,
        "biz_opaque_callback_data": send["opaque_id"],
    }
    assert await world.post(whatsapp(statuses=[row])) == 200
    assert await world.one("SELECT state FROM parts") == "delivered"
    assert len(world.graph.sends) == 1


@pytest.mark.slow
async def test_one_of_two_workers_is_killed_under_load(world: World, workspace: WorkerWorkspace) -> None:
    workspace.script('[[rules]]\ntext = "Recebi: {burst}"\ndelay_s = 0.3\n')
    customers = [f"55119{number:08}" for number in range(60)]
    with workspace.worker() as survivor, workspace.worker() as victim:
        await asyncio.gather(*(world.say("oi", customer=customer) for customer in customers))
        await world.until("SELECT count(DISTINCT worker) FROM attempts", 2, limit_s=20)
        kill(victim)
        await world.until("SELECT count(*) FROM work_items WHERE state = 'pending'", 0, limit_s=20)
        live = f"SELECT count(*) FROM attempts WHERE state = 'running' AND worker LIKE '%%-{survivor.pid}-%%'"
        await world.until(live, 0, limit_s=20)
        await world.travel(LEASE_S)
        await world.until("SELECT count(*) FROM work_items WHERE state = 'completed'", len(customers), limit_s=30)
        survivor.send_signal(signal.SIGTERM)
        await asyncio.to_thread(survivor.communicate, timeout=30)
        assert survivor.returncode == 0
    await world.travel(130)
    await finish(world, workspace)
    unknown = await world.one("SELECT count(*) FROM parts WHERE state = 'unknown'")
    texts = {customer: world.sent(customer) for customer in customers}
    assert all(said == ["Recebi: oi"] for said in texts.values()) or unknown > 0
    assert max(len(said) for said in texts.values()) == 1
    assert sum(len(said) for said in texts.values()) + unknown >= len(customers)
    await world.is_quiet()


@pytest.mark.slow
async def test_sigterm_in_the_middle_of_a_turn_leaves_nothing_leased(world: World, workspace: WorkerWorkspace) -> None:
    workspace.script('[[rules]]\ntool = "nothing"\ndelay_s = 1\nnth = 1\n' + ECHO_SCRIPT)
    await world.say("oi")
    with workspace.worker() as process:
        await world.until("SELECT state FROM attempts", "running", limit_s=20)
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 0, errors
    await world.is_quiet()
    assert await world.one("SELECT state FROM work_items") == "pending"
    assert await world.one("SELECT attempts FROM work_items") == 0
    await finish(world, workspace)
    assert world.sent() == ["Recebi: oi"]


@pytest.mark.slow
async def test_a_worker_frozen_past_its_lease_writes_and_sends_nothing_when_it_wakes(
    world: World, workspace: WorkerWorkspace
) -> None:
    workspace.script('[[rules]]\nnth = 1\ntool = "nothing"\n[[rules]]\ntext = "do congelado: {burst}"\ndelay_s = 2\n')
    await world.say("oi")
    with workspace.worker() as frozen:
        await world.until("SELECT count(*) FROM steps", 1, limit_s=20)
        frozen.send_signal(signal.SIGSTOP)
        await world.travel(LEASE_S)
        await finish(world, workspace)
        assert world.sent() == ["Recebi: oi"]
        frozen.send_signal(signal.SIGCONT)
        await world.until("SELECT count(*) FROM model_calls WHERE outcome = 'ok'", 3, limit_s=20)
        frozen.send_signal(signal.SIGTERM)
        await asyncio.to_thread(frozen.communicate, timeout=20)
    assert world.sent() == ["Recebi: oi"]
    assert await world.one("SELECT count(*) FROM replies") == 1
    assert await world.one("SELECT count(*) FROM steps") == 2
    await world.is_quiet()


@pytest.mark.slow
async def test_postgres_killed_and_restarted_under_load(
    reachable_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = reachable_path / "state"
    with embedded_server(state) as dsn:
        upgrade(dsn)
        async with await Database.open(dsn) as db, open_world(db, tmp_path) as world:
            await world.organization()
            workspace = WorkerWorkspace(tmp_path / "workspace", dsn)
            workspace.script('[[rules]]\ntext = "Recebi: {burst}"\ndelay_s = 0.5\n')
            customers = [f"55119{number:08}" for number in range(30)]
            await asyncio.gather(*(world.say("oi", customer=customer) for customer in customers))
            with workspace.worker() as process:
                await world.until("SELECT count(*) >= 10 FROM attempts", True, limit_s=20)
                postmaster = int((await world.one("SELECT pg_read_file('postmaster.pid')")).split()[0])
                os.kill(postmaster, signal.SIGKILL)
                await _answered(world, customers)
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.communicate, timeout=40)
                assert process.returncode == 0
                assert all(len(world.sent(customer)) <= 1 for customer in customers)
                unsaid = [customer for customer in customers if not world.sent(customer)]
                waiting = await world.one("SELECT count(*) FROM parts WHERE state IN ('unknown', 'sending', 'pending')")
                assert len(unsaid) <= waiting


async def _answered(world: World, customers: list[str]) -> None:
    """Wait until every item is done, moving time for leases of turns whose end could not be written."""
    async with asyncio.timeout(50):
        while True:
            try:
                rows: list[dict[str, Any]] = await world.rows(
                    "SELECT count(*) FILTER (WHERE state = 'completed') AS done,"
                    " count(*) FILTER (WHERE state = 'processing') AS held FROM work_items"
                )
            except Exception:
                await asyncio.sleep(0.2)
                continue
            if rows[0]["done"] == len(customers):
                return
            await asyncio.sleep(1)
            if rows[0]["done"] + rows[0]["held"] == len(customers):
                await asyncio.sleep(3)
                await world.travel(LEASE_S)
