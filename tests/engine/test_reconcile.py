"""What people decide about replies that are unknown or failed, and what they cannot decide."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.world import CUSTOMER, World
from zaia_cli.core.errors import ConfigError, NotFoundError, RefusedError
from zaia_cli.engine import people, reconcile
from zaia_cli.engine.worker import Worker

REFUSED = {"error": {"message": "x", "code": 131026}}


async def unknown_part(world: World) -> str:
    world.graph.plan(nth=1, timeout_without_accept=True)
    await world.say("oi")
    await world.work()
    return await part(world)


async def part(world: World) -> str:
    found: str = await world.one("SELECT reply_id || ':' || n FROM parts WHERE n = 1 LIMIT 1")
    return found


async def states(world: World) -> list[str]:
    return [row["state"] for row in await world.rows("SELECT state FROM parts ORDER BY position")]


@pytest.mark.parametrize(("decision", "state"), [("mark_sent", "accepted"), ("fail", "failed"), ("resend", "pending")])
async def test_a_decision_about_an_unknown_part_is_an_event_with_the_person(
    world: World, decision: str, state: str
) -> None:
    name = await unknown_part(world)
    done = await getattr(reconcile, decision)(world.db, name, by="ana")
    assert done == {"part": name, "from": "unknown", "to": state}
    rows = await world.rows("SELECT to_state, by FROM events WHERE entity = 'part' AND actor = 'person'")
    assert rows == [{"to_state": state, "by": "ana"}]
    await world.work()
    assert len(world.sent()) == (1 if decision == "resend" else 0)


async def test_a_part_that_is_being_sent_cannot_be_sent_again(world: World) -> None:
    world.graph.plan(nth=1, answer_delay_s=0.5)
    await world.say("oi")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM parts", "sending")
        with pytest.raises(RefusedError):
            await reconcile.resend(world.db, await part(world), by="ana")
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_an_answer_that_a_person_replaced_is_not_sent_again(world: World) -> None:
    world.graph.plan(nth=1, http=400, json=REFUSED)
    await world.say("oi")
    await world.work()
    assert await states(world) == ["failed"]
    with pytest.raises(RefusedError, match="plantao has the conversation"):
        await reconcile.resend(world.db, await part(world), by="ana")
    conversation = await world.one("SELECT conversation_id FROM hot")
    await people.resolve(world.db, "loja-a", conversation, by="ana", return_to_agent=True)
    await reconcile.resend(world.db, await part(world), by="ana")
    await world.work()
    assert world.sent() == ["Recebi: oi"]


async def test_two_people_who_settle_one_part_settle_it_once(world: World) -> None:
    name = await unknown_part(world)
    done = await asyncio.gather(
        *(reconcile.mark_sent(world.db, name, by=by) for by in ("ana", "bia", "caio")), return_exceptions=True
    )
    assert sum(isinstance(result, RefusedError) for result in done) == 2
    assert await states(world) == ["accepted"]


async def test_a_part_that_does_not_exist_is_said_so(world: World) -> None:
    with pytest.raises(NotFoundError):
        await reconcile.resend(world.db, "00000000-0000-0000-0000-000000000007:1", by="ana")
    with pytest.raises(ConfigError):
        await reconcile.resend(world.db, "isto não é", by="ana")


async def test_a_late_answer_to_an_unknown_send_is_recorded_as_what_it_was(world: World) -> None:
    world.configure(delivery={"unknown_after_s": 120, "read_timeout_s": 5})
    world.graph.plan(nth=1, answer_delay_s=0.6, message_id="wamid.LATE")
    await world.say("oi")
    async with world.running(Worker(world.parts(), has_scheduler=False)):
        await world.until("SELECT state FROM parts", "sending")
        await world.travel(121)
        await world.tick()
        assert await states(world) == ["unknown"]
        await world.until("SELECT state FROM parts", "accepted")
    rows: list[dict[str, Any]] = await world.rows(
        "SELECT from_state, to_state, actor FROM events WHERE entity = 'part' ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("sending", "unknown", "scheduler"),
        ("unknown", "accepted", "worker"),
    ]
    assert world.sent(CUSTOMER) == ["Recebi: oi"]


async def test_an_account_is_closed_before_what_it_refused_waits_again(world: World) -> None:
    world.graph.plan(nth=1, http=401, json={"error": {"message": "expired", "code": 190}})
    await world.say("oi")
    await world.work()
    assert await states(world) == ["pending"]
    assert await world.one("SELECT g.closed_at <= p.updated_at FROM gates g, parts p") is True
