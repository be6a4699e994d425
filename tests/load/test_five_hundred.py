"""Five hundred conversations, repeated, reordered and malformed webhooks, two workers: one answer per burst."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import started
from tests.engine.workspace import WorkerWorkspace
from tests.engine.world import ACCOUNT, SECRET, World, message, open_world, whatsapp
from zaia_cli.store.database import Database

CONVERSATIONS = 500
WAVES = 5
SEED = 20261201
AT_ONCE = 16
WINDOW = {"coalesce_s": 600, "coalesce_max_s": 600}


@dataclass(slots=True)
class Talk:
    """One customer's burst."""

    channel: str
    address: str
    texts: list[str]
    bodies: list[tuple[str, Any]] = field(default_factory=list)


def instagram(text: str, mid: str, address: str) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    account = "178" + ACCOUNT
    event = {
        "sender": {"id": address},
        "recipient": {"id": account},
        "timestamp": now_ms,
        "message": {"mid": mid, "text": text},
    }
    return {"object": "instagram", "entry": [{"id": account, "time": now_ms, "messaging": [event]}]}


def make_talks(chance: random.Random) -> list[Talk]:
    """Bursts of 1 to 4 messages on three channels; one in ten arrives in another order than it was written."""
    talks = []
    for number in range(CONVERSATIONS):
        channel = chance.choices(["whatsapp", "instagram", "http"], [6, 2, 2])[0]
        address = {"whatsapp": f"55119{number:08}", "instagram": f"9{number:014}", "http": f"c{number}@exemplo.test"}[
            channel
        ]
        size = chance.choices([1, 2, 3, 4], [40, 35, 15, 10])[0]
        talk = Talk(channel, address, [f"mensagem {n} de {number}" for n in range(1, size + 1)])
        for n, text in enumerate(talk.texts, start=1):
            name = f"{number}.{n}"
            if channel == "whatsapp":
                talk.bodies.append((channel, whatsapp([message(text, f"wamid.L{name}", address)])))
            elif channel == "instagram":
                talk.bodies.append((channel, instagram(text, f"mid.L{name}", address)))
            else:
                talk.bodies.append((channel, {"id": f"r{name}", "from": address, "text": text}))
        if chance.random() < 0.1:
            talk.bodies.reverse()
        talks.append(talk)
    return talks


def malformed(number: int, *neighbours: Any) -> dict[str, Any]:
    """A webhook in which one item cannot be read; its neighbours can."""
    broken = {"from": "5511900000000", "timestamp": "never", "type": "text", "text": {"body": f"quebrada {number}"}}
    return whatsapp([broken, *neighbours])


class Delivering:
    """The channel's side: webhooks in waves, a tenth of them twice, some of them malformed."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.repeats = 0
        self.broken = 0
        self._late: list[tuple[str, Any]] = []

    async def send(self, channel: str, body: Any) -> None:
        if channel == "http":
            status, _ = await self.world.intake(body)
        else:
            status = await self.world.post(body, channel)
        assert status == 200

    async def wave(self, talks: list[Talk]) -> None:
        """Deliver bursts, then close their window: what a customer wrote within it is one burst."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def deliver(talk: Talk) -> None:
            async with slots:
                for channel, body in talk.bodies:
                    await self._one(channel, body)

        late, self._late = self._late, []
        self.broken += 5
        await asyncio.gather(
            *(deliver(talk) for talk in talks),
            *(self.send(channel, body) for channel, body in late),
            *(self.world.post(malformed(number)) for number in range(5)),
        )
        await self.world.rows("UPDATE hot SET due_at = now() WHERE due_at > now()")
        await self.world.db.notify()

    async def _one(self, channel: str, body: Any) -> None:
        dice = self.chance.random()
        if dice < 0.05 and channel == "whatsapp":
            self.broken += 1
            body = malformed(self.broken, *body["entry"][0]["changes"][0]["value"]["messages"])
            await self.send(channel, body)
            return
        await self.send(channel, body)
        if dice > 0.9:
            self.repeats += 1
            if dice > 0.95:
                self._late.append((channel, body))
            else:
                await self.send(channel, body)

    async def last(self) -> None:
        """Deliver the repeats that are still to come, after everything was answered."""
        for channel, body in self._late:
            await self.send(channel, body)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_burst_of_five_hundred_conversations_is_answered_once(
    db: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAIA_TEST_TOKEN", "token-de-teste")
    monkeypatch.setenv("ZAIA_TEST_SECRET", SECRET)
    monkeypatch.setenv("ZAIA_TEST_VERIFY", "v")
    chance = random.Random(SEED)
    talks = make_talks(chance)
    workspace = WorkerWorkspace(tmp_path / "workspace", dsn)
    async with open_world(db, tmp_path) as world:
        world.configure(turn=WINDOW)
        world.graph.statuses = ["sent", "delivered", "read"]
        for talk in talks:
            if chance.random() < 0.1:
                world.graph.plan(to=talk.address, statuses_before_answer=True)
        await world.organization()
        channel = Delivering(world, chance)
        with workspace.worker() as one, workspace.worker() as two:
            await world.until("SELECT count(*) FROM workers", 2, limit_s=30)
            for first in range(WAVES):
                await channel.wave(talks[first::WAVES])
            items = "SELECT count(*) FROM work_items WHERE state = 'completed'"
            await world.until(items, CONVERSATIONS, limit_s=90)
            await world.until("SELECT count(*) FROM parts WHERE state IN ('pending', 'sending')", 0, limit_s=60)
            await world.graph.settled()
            await channel.last()
            outputs = []
            for process in (one, two):
                process.send_signal(signal.SIGTERM)
            for process in (one, two):
                output, errors = await asyncio.to_thread(process.communicate, timeout=30)
                assert process.returncode == 0, errors
                outputs.append(json.loads(output))

        sent: dict[str, list[str]] = {}
        for send in world.graph.sends:
            sent.setdefault(send["to"], []).append(send["text"])
        wrong = {talk.address: sent.get(talk.address) for talk in talks if len(sent.get(talk.address, ())) != 1}
        assert wrong == {}
        unread = [talk.address for talk in talks if any(text not in sent[talk.address][0] for text in talk.texts)]
        assert unread == []
        assert max(Counter(send["opaque_id"] for send in world.graph.sends if send["opaque_id"]).values()) == 1
        assert all(output["turns"] > 0 for output in outputs)
        assert sum(output["turns"] for output in outputs) == CONVERSATIONS
        assert sum(output["replies_sent"] for output in outputs) == CONVERSATIONS
        await world.is_quiet()
        stats = await queue_stats(workspace)
        assert stats["rejected_inputs"] == channel.broken
        assert stats["duplicate_inputs"] == channel.repeats
        assert stats["completed"] == CONVERSATIONS == sum(stats["replies"].values())
        assert stats["replies"]["read"] == sum(talk.channel == "whatsapp" for talk in talks)
        assert sum(stats[name] for name in ("pending", "processing", "failed", "needs_human", "cancelled")) == 0
        assert stats["human_open"] == 0


async def queue_stats(workspace: WorkerWorkspace) -> dict[str, Any]:
    with started("queue", "stats", "--json", env=workspace.environment) as process:
        output, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0
    stats: dict[str, Any] = json.loads(output)
    return stats
