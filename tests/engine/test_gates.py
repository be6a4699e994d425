"""A closed channel account: replies wait, and a person opens it again."""

from __future__ import annotations

import pytest

from tests.engine.world import ACCOUNT, World
from zaia_cli.core.errors import NotFoundError
from zaia_cli.engine.gates import gate_name, open_gate

GATE = gate_name("whatsapp", ACCOUNT)


async def test_a_missing_secret_closes_the_account_and_spends_no_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZAIA_TEST_TOKEN")
    await world.say("oi")
    await world.work()
    rows = await world.rows("SELECT state, attempts FROM parts")
    assert rows == [{"state": "pending", "attempts": 0}]
    assert await world.one("SELECT reason FROM gates") == "no_token: the token's variable is not set"
    monkeypatch.setenv("ZAIA_TEST_TOKEN", "token-de-teste")
    await open_gate(world.db, "loja-a", GATE, by="ana")
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert await world.one("SELECT by FROM events WHERE entity = 'gate'") == "ana"


async def test_a_gate_that_is_open_cannot_be_opened(world: World) -> None:
    with pytest.raises(NotFoundError):
        await open_gate(world.db, "loja-a", GATE, by="ana")


async def test_a_slow_number_reopens_by_itself(world: World) -> None:
    world.graph.plan(nth=1, http=429, json={"error": {"message": "x", "code": 130429}}, headers={"Retry-After": "1"})
    await world.say("oi")
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert len(world.graph.sends) == 2
    assert await world.one("SELECT count(*) FROM gates") == 0
