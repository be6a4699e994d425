"""A closed channel account: replies wait, and a person opens it again."""

from __future__ import annotations

import pytest

from tests.engine.world import ACCOUNT, World
from zaia_cli.core.errors import NotFoundError
from zaia_cli.engine.gates import gate_name, open_gate
from zaia_cli.engine.worker import Worker

GATE = gate_name("whatsapp", ACCOUNT)


async def test_a_worker_without_the_token_leaves_the_reply_to_one_that_has_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZAIA_TEST_TOKEN")
    await world.say("oi")
    await world.work_until("SELECT count(*) FROM alerts WHERE kind = 'no_token'", 1)
    assert await world.rows("SELECT state, attempts FROM parts") == [{"state": "pending", "attempts": 0}]
    assert await world.one("SELECT count(*) FROM gates") == 0
    monkeypatch.setenv("ZAIA_TEST_TOKEN", "token-de-teste")
    await world.travel(31)
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_a_closed_account_is_opened_by_a_person_and_what_waited_goes_out(world: World) -> None:
    world.graph.plan(nth=1, http=401, json={"error": {"message": "expired", "code": 190}})
    await world.say("oi")
    await world.work()
    assert await world.one("SELECT state FROM parts") == "pending"
    await open_gate(world.db, "loja-a", GATE, by="ana")
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert await world.one("SELECT by FROM events WHERE entity = 'gate'") == "ana"


async def test_a_worker_for_one_channel_leaves_the_others_alone(world: World) -> None:
    await world.say("oi")
    await world.intake({"from": "c@exemplo.test", "text": "olá"})
    worker = Worker(world.parts(), has_scheduler=False, only_channel="http")
    async with world.running(worker):
        await world.until("SELECT count(*) FROM parts WHERE state = 'accepted'", 1)
    assert world.sent() == []
    assert await world.one("SELECT count(*) FROM work_items WHERE state = 'pending'") == 1
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_a_gate_that_is_open_cannot_be_opened(world: World) -> None:
    with pytest.raises(NotFoundError):
        await open_gate(world.db, "loja-a", GATE, by="ana")


async def test_a_slow_number_reopens_by_itself(world: World) -> None:
    world.graph.plan(nth=1, http=429, json={"error": {"message": "x", "code": 130429}}, headers={"Retry-After": "1"})
    await world.say("oi")
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert len(world.graph.sends) == 2
    await world.travel(2)
    await world.tick()
    assert await world.one("SELECT count(*) FROM gates") == 0
