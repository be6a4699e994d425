"""Our own echo may arrive at any moment of our own send: it is never taken for a person.

Idea: the send reports exactly between the two reads with which an echo is judged.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.engine.world import ACCOUNT, World
from zaia_cli.engine.worker import Worker
from zaia_cli.store.database import Database, Session

ADDRESS = "9000000000000001"
READS = {"outbox.part_of_echo", "outbox.in_flight_parts"}


def instagram(message_id: str, text: str, *, is_echo: bool) -> dict[str, Any]:
    account, now_ms = "178" + ACCOUNT, int(time.time() * 1000)
    sender, recipient = (account, ADDRESS) if is_echo else (ADDRESS, account)
    message = {"mid": message_id, "text": text, **({"is_echo": True} if is_echo else {})}
    event = {"sender": {"id": sender}, "recipient": {"id": recipient}, "timestamp": now_ms, "message": message}
    return {"object": "instagram", "entry": [{"id": account, "time": now_ms, "messaging": [event]}]}


async def sending(world: World) -> dict[str, Any]:
    """Wait until the channel has our answer and has not said so yet; returns the echo that it tells."""
    async with asyncio.timeout(10):
        while not world.graph.sends:  # noqa: ASYNC110 - the simulator's own list is the truth
            await asyncio.sleep(0.01)
    (send,) = world.graph.sends
    return instagram(send["message_id"], send["text"], is_echo=True)


async def nobody_took_over(world: World) -> None:
    assert await world.one("SELECT owner FROM hot") == "agent"
    assert await world.one("SELECT count(*) FROM handoffs") == 0
    assert await world.one("SELECT count(*) FROM messages WHERE role = 'human'") == 0


async def test_a_send_that_reports_while_its_echo_is_judged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    original, reads = Session.run, []

    async def run(self: Session, name: str, /, *args: Any, **params: Any) -> Any:
        rows = await original(self, name, *args, **params)
        if name in READS:
            reads.append(name)
            if len(reads) == 1:
                await world.until("SELECT state FROM parts", "accepted")
        return rows

    world.graph.plan(to=ADDRESS, answer_delay_s=0.5)
    async with world.running(Worker(world.parts(), has_scheduler=False)):
        assert await world.post(instagram("mid.1", "oi", is_echo=False), "instagram") == 200
        echo = await sending(world)
        monkeypatch.setattr(Session, "run", run)
        assert await world.post(echo, "instagram") == 200
        monkeypatch.setattr(Session, "run", original)
    assert reads
    await nobody_took_over(world)


async def test_a_send_that_reports_while_its_held_echo_is_judged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Database.run

    async def run(self: Database, name: str, /, *args: Any, **params: Any) -> Any:
        rows = await original(self, name, *args, **params)
        if name == "outbox.drop_echoes":
            await world.until("SELECT state FROM parts", "accepted")
        return rows

    world.graph.plan(to=ADDRESS, answer_delay_s=0.5)
    async with world.running(Worker(world.parts(), has_scheduler=False)):
        assert await world.post(instagram("mid.1", "oi", is_echo=False), "instagram") == 200
        assert await world.post(await sending(world), "instagram") == 200
        assert await world.one("SELECT count(*) FROM held_echoes") == 1
        monkeypatch.setattr(Database, "run", run)
        await world.tick()
        monkeypatch.setattr(Database, "run", original)
    await nobody_took_over(world)
    await world.tick()
    assert await world.one("SELECT count(*) FROM held_echoes") == 0
