"""Processes killed or frozen exactly between two writes, and a database that restarts: answered once, accounted for.

Idea: a table lock held by the test is the failpoint: the worker's statement waits for it, so the moment is exact. What
the database then does with the statement of a dead client (run it, or not) is chosen by the test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.cli.processes import started
from tests.engine.workspace import WorkerWorkspace
from tests.engine.world import CUSTOMER, ECHO_SCRIPT, World, open_world, whatsapp
from zaia_cli.core.errors import UnavailableError
from zaia_cli.engine.reconcile import resend
from zaia_cli.store.database import Database
from zaia_cli.store.embedded import embedded_server
from zaia_cli.store.migrate import upgrade

LEASE_S = 121
CUSTOMERS = [f"55118{number:08}" for number in range(40)]
WAITING = """SELECT pid FROM pg_locks WHERE NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
MINE = "WHERE item_id = (SELECT id FROM work_items ORDER BY opened_at DESC LIMIT 1)"
OURS = f"WHERE reply_id = (SELECT id FROM replies {MINE})"


class Held:
    """A failpoint: statements that write to one table wait until ``release``."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], watcher: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._watcher = watcher
        self._pids: list[int] = []

    async def reached(self) -> None:
        """Wait until a statement waits."""
        async with asyncio.timeout(20):
            while not self._pids:
                self._pids = [row[0] for row in await (await self._watcher.execute(WAITING)).fetchall()]
                await asyncio.sleep(0.02)

    async def release(self, *, lands: bool = True) -> None:
        """Let the waiting statements run; or make the server forget them, as if it had never read them."""
        if not lands:
            for pid in self._pids:
                await self._watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        await self._connection.rollback()


@asynccontextmanager
async def held(dsn: str, lock: LiteralString) -> AsyncIterator[Held]:
    async with (
        await psycopg.AsyncConnection.connect(dsn) as connection,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watcher,
    ):
        await connection.execute(lock)
        yield Held(connection, watcher)
        await connection.rollback()


def one_connection(workspace: WorkerWorkspace) -> dict[str, str]:
    return {**workspace.environment, "ZAIA_DATABASE__POOL_SIZE": "1"}


async def warmed_up(world: World) -> None:
    """Answer somebody else first: after it the worker's connection has every statement prepared, so one message of the
    protocol runs it, whatever becomes of the process that sent it."""
    await world.say("antes", customer=CUSTOMERS[0])
    await world.until("SELECT state FROM parts", "accepted", limit_s=30)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.to_thread(process.communicate, timeout=40)
    assert process.returncode == 0, errors


async def finish(workspace: WorkerWorkspace) -> None:
    """Let a fresh process do what is left."""
    with workspace.worker("--drain") as process:
        _, errors = await asyncio.to_thread(process.communicate, timeout=40)
        assert process.returncode == 0, errors


async def tell_statuses(world: World) -> None:
    """What the channel knows of every send that it accepted."""
    for send in world.graph.sends:
        told = {"id": send["message_id"], "status": "delivered", "timestamp": str(int(time.time()))}
        told |= {"recipient_id": send["to"], "biz_opaque_callback_data": send["opaque_id"]}
        assert await world.post(whatsapp(statuses=[told])) == 200


async def answered_once(world: World, workspace: WorkerWorkspace, customers: Sequence[str]) -> None:
    """After everything that can die has died: what was sent is known as sent, the rest is sent by a person's word."""
    await tell_statuses(world)
    sent = Counter(send["to"] for send in world.graph.sends)
    unknown = await world.rows(
        "SELECT p.reply_id || ':' || p.n AS part, c.address FROM parts p"
        " JOIN conversations c ON c.id = p.conversation_id WHERE p.state = 'unknown'"
    )
    assert {row["address"] for row in unknown} == set(customers) - set(sent)
    for row in unknown:
        await resend(world.db, row["part"], by="ana")
    await finish(workspace)
    assert {customer: world.sent(customer) for customer in customers} == {c: ["Recebi: oi"] for c in customers}
    opaque = [send["opaque_id"] for send in world.graph.sends]
    assert len(opaque) == len(set(opaque)) == len(customers)
    assert await world.one("SELECT count(*) FROM parts WHERE state NOT IN ('accepted', 'delivered')") == 0
    assert await world.one("SELECT count(*) FROM work_items WHERE state <> 'completed'") == 0
    assert await world.one("SELECT count(*) FROM model_calls WHERE outcome = 'lost'") == await world.one(
        "SELECT count(*) FROM attempts WHERE error->>'code' = 'lease_expired'"
    )
    await world.is_quiet()


@pytest.mark.slow
@pytest.mark.parametrize("lands", [False, True])
async def test_killed_between_the_models_answer_and_its_save(
    world: World, workspace: WorkerWorkspace, dsn: str, lands: bool
) -> None:
    with started("run-worker", "--json", env=one_connection(workspace)) as process:
        await warmed_up(world)
        async with held(dsn, "LOCK TABLE steps IN EXCLUSIVE MODE") as failpoint:
            await world.say("oi", "tudo bem?")
            await failpoint.reached()
            kill(process)
            await failpoint.release(lands=lands)
    await world.until(f"SELECT count(*) FROM steps {MINE}", int(lands))
    await world.travel(LEASE_S)
    await finish(workspace)
    assert world.sent() == ["Recebi: oi | tudo bem?"]
    attempts = await world.rows(f"SELECT state, error->>'code' AS code FROM attempts {MINE} ORDER BY n")
    assert [(row["state"], row["code"]) for row in attempts] == [("failed", "lease_expired"), ("succeeded", None)]
    calls = Counter(row["outcome"] for row in await world.rows(f"SELECT outcome FROM model_calls {MINE}"))
    assert calls == ({"ok": 1, "lost": 1} if lands else {"ok": 2, "lost": 1})
    await world.is_quiet()


@pytest.mark.slow
@pytest.mark.parametrize("lands", [False, True])
async def test_killed_between_the_last_step_and_the_turns_commit(
    world: World, workspace: WorkerWorkspace, dsn: str, lands: bool
) -> None:
    with started("run-worker", "--json", env=one_connection(workspace)) as process:
        await warmed_up(world)
        async with held(dsn, "LOCK TABLE replies IN EXCLUSIVE MODE") as failpoint:
            await world.say("oi")
            await failpoint.reached()
            kill(process)
            await failpoint.release(lands=lands)
    await world.until(f"SELECT count(*) FROM replies {MINE}", int(lands))
    await world.travel(LEASE_S)
    await finish(workspace)
    assert world.sent() == ["Recebi: oi"]
    states = [row["state"] for row in await world.rows(f"SELECT state FROM attempts {MINE} ORDER BY n")]
    assert states == (["succeeded"] if lands else ["failed", "succeeded"])
    paid = await world.one(f"SELECT count(*) FILTER (WHERE outcome = 'ok') FROM model_calls {MINE}")
    assert paid == 1, "the saved step is not paid twice"
    await world.is_quiet()


@pytest.mark.slow
async def test_a_connection_that_breaks_under_the_ledger_loses_neither_the_cost_nor_the_attempt(
    world: World, workspace: WorkerWorkspace, dsn: str
) -> None:
    with started("run-worker", "--json", env=one_connection(workspace)) as process:
        await warmed_up(world)
        async with held(dsn, "LOCK TABLE model_calls IN EXCLUSIVE MODE") as failpoint:
            await world.say("oi")
            await failpoint.reached()
            await failpoint.release(lands=False)
        await world.until("SELECT count(*) FROM parts WHERE state = 'accepted'", 2, limit_s=20)
        await terminate(process)
    assert await world.rows(f"SELECT outcome, step FROM model_calls {MINE}") == [{"outcome": "ok", "step": 1}]
    assert await world.one(f"SELECT count(*) FROM attempts {MINE}") == 1
    assert world.sent() == ["Recebi: oi"]


@pytest.mark.slow
async def test_a_connection_that_breaks_while_a_send_reports_does_not_make_it_unknown(
    world: World, workspace: WorkerWorkspace, dsn: str
) -> None:
    world.graph.plan(to=CUSTOMER, answer_delay_s=1)
    environment = {**one_connection(workspace), "ZAIA_QUEUE__POLL_S": "60"}
    with started("run-worker", "--json", "--no-scheduler", env=environment) as process:
        await warmed_up(world)
        await world.say("oi")
        await world.until("SELECT count(*) FROM parts WHERE state = 'sending'", 1, limit_s=20)
        async with held(dsn, "LOCK TABLE deliveries IN EXCLUSIVE MODE") as failpoint:
            await failpoint.reached()
            await failpoint.release(lands=False)
        await world.until("SELECT count(*) FROM parts WHERE state = 'accepted'", 2, limit_s=20)
        await terminate(process)
    assert world.sent() == ["Recebi: oi"]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_killed_while_the_channel_holds_many_answers(world: World, workspace: WorkerWorkspace) -> None:
    world.graph.plan(times=len(CUSTOMERS), answer_delay_s=4)
    with workspace.worker() as survivor, workspace.worker() as victim:
        await world.until("SELECT count(*) FROM workers", 2, limit_s=30)
        await asyncio.gather(*(world.say("oi", customer=customer) for customer in CUSTOMERS))
        async with asyncio.timeout(30):
            while await sends_held(world, victim.pid) < 3:  # noqa: ASYNC110 - the simulator's list is the truth
                await asyncio.sleep(0.02)
        kill(victim)
        await world.until("SELECT count(*) FROM work_items WHERE state = 'pending'", 0, limit_s=30)
        await terminate(survivor)
    await world.travel(LEASE_S)
    await finish(workspace)
    assert await world.one("SELECT count(*) FROM parts WHERE state = 'unknown'") >= 3
    await answered_once(world, workspace, CUSTOMERS)


async def sends_held(world: World, pid: int) -> int:
    """Sends of one worker that the channel has accepted and not answered."""
    arrived = [send["opaque_id"] for send in world.graph.sends]
    count: int = await world.one(
        "SELECT count(*) FROM deliveries"
        " WHERE outcome IS NULL AND opaque_id = ANY(%(arrived)s) AND worker LIKE %(mine)s",
        arrived=arrived,
        mine=f"%-{pid}-%",
    )
    return count


@pytest.mark.slow
async def test_frozen_between_claiming_a_send_and_its_first_byte(
    world: World, workspace: WorkerWorkspace, dsn: str
) -> None:
    short = {
        **one_connection(workspace),
        "ZAIA_DELIVERY__UNKNOWN_AFTER_S": "2",
        "ZAIA_DELIVERY__RESEND_UNKNOWN": "true",
    }
    only_woken = {**short, "ZAIA_QUEUE__POLL_S": "60"}
    two_steps = '[[rules]]\nburst = "oi"\nnth = 1\ntool = "nothing"\n[[rules]]\nburst = "oi"\ndelay_s = 1\n'
    workspace.script(two_steps + 'text = "Recebi: {burst}"\n' + ECHO_SCRIPT)
    world.graph.plan(to=CUSTOMER, answer_delay_s=8)
    with started("run-worker", "--json", "--no-scheduler", env=only_woken) as frozen:
        await warmed_up(world)
        await world.say("oi")
        try:
            await world.until(f"SELECT count(*) FROM steps {MINE}", 1, limit_s=20)
        except TimeoutError:
            print(
                "DIAG",
                await world.rows(
                    "SELECT n, item_id, model, answer->>chr(116)||chr(101)||chr(120)||chr(116) AS t, at FROM (SELECT *, now() AS at FROM steps) s"
                ),
                await world.rows("SELECT id, state, opened_at, started_at, now() FROM work_items"),
                await world.rows("SELECT due_at, token FROM hot"),
            )
            raise
        async with held(dsn, "LOCK TABLE deliveries IN EXCLUSIVE MODE") as failpoint:
            await failpoint.reached()
            frozen.send_signal(signal.SIGSTOP)
            await failpoint.release()
        await world.until(f"SELECT state FROM parts {OURS}", "sending")
        with started("run-worker", "--json", env=short) as fresh:
            await world.until("SELECT max(n) FROM deliveries", 2, limit_s=30)
            async with asyncio.timeout(10):
                while not world.sent():  # noqa: ASYNC110 - the simulator's own list is the truth
                    await asyncio.sleep(0.02)
            frozen.send_signal(signal.SIGCONT)
            await terminate(frozen)
            assert await world.one(f"SELECT state FROM parts {OURS}") == "sending", "the newer delivery alone decides"
            await world.until(f"SELECT state FROM parts {OURS}", "accepted", limit_s=20)
            await terminate(fresh)
    assert world.sent() == ["Recebi: oi"]
    outcomes = await world.rows(f"SELECT outcome FROM deliveries {OURS} ORDER BY n")
    assert [row["outcome"] for row in outcomes] == ["given_up", "accepted"]


@pytest.mark.slow
@pytest.mark.timeout(150)
async def test_postgres_restarts_under_load_and_nothing_is_lost_or_doubled(
    reachable_path: Path, tmp_path: Path
) -> None:
    with embedded_server(reachable_path / "state") as dsn:
        upgrade(dsn)
        async with await Database.open(dsn) as db, open_world(db, tmp_path) as world:
            await world.organization()
            workspace = WorkerWorkspace(tmp_path / "workspace", dsn)
            workspace.script('[[rules]]\ntext = "Recebi: {burst}"\ndelay_s = 0.5\n')
            before, during = CUSTOMERS[:25], CUSTOMERS[25:]
            with workspace.worker() as process:
                await asyncio.gather(*(world.say("oi", customer=customer) for customer in before))
                await world.until("SELECT count(*) >= 10 FROM attempts", True, limit_s=30)
                postmaster = int((await world.one("SELECT pg_read_file('postmaster.pid')")).split()[0])
                os.kill(postmaster, signal.SIGINT)
                await asyncio.gather(*(say_until_taken(world, customer) for customer in during))
                await until_taken_up(world)
                assert process.poll() is None
                await terminate(process)
            await world.travel(LEASE_S)
            await finish(workspace)
            await answered_once(world, workspace, CUSTOMERS)


async def say_until_taken(world: World, customer: str) -> None:
    """Deliver one message as the channel does: again until it is told 200."""
    body = whatsapp(
        [
            {
                "from": customer,
                "id": f"wamid.R{customer}",
                "timestamp": str(int(time.time())),
                "type": "text",
                "text": {"body": "oi"},
            }
        ]
    )
    async with asyncio.timeout(40):
        while (status := await world.post(body)) != 200:
            assert status == 503
            await asyncio.sleep(0.2)


async def until_taken_up(world: World) -> None:
    """Wait until no item waits for a worker."""
    async with asyncio.timeout(60):
        while True:
            try:
                if await world.one("SELECT count(*) FROM work_items WHERE state = 'pending'") == 0:
                    return
            except UnavailableError:
                pass
            await asyncio.sleep(0.2)
