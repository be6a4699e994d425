"""What people do with conversations and items, and what it does to a running turn."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.engine.world import World
from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.engine import people
from zaia_cli.engine.worker import Worker

ORG = "loja-a"
SLOW = "[[rules]]\ntext = 'Recebi: {burst}'\ndelay_s = 0.4\n"


async def conversation(world: World) -> UUID:
    found: UUID = await world.one("SELECT conversation_id FROM hot")
    return found


async def test_a_takeover_in_the_middle_of_a_turn_ends_it_without_a_word(world: World) -> None:
    world.script(SLOW)
    await world.say("quero cancelar")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await people.take(world.db, ORG, await conversation(world), by="ana")
        await world.say("alô?")
    await world.work()
    assert world.graph.sends == []
    assert await world.one("SELECT state FROM work_items") == "cancelled"
    assert await world.one("SELECT state FROM attempts") == "cancelled"
    assert await world.one("SELECT count(*) FROM model_calls") == 1
    assert await world.one("SELECT by FROM events WHERE entity = 'conversation'") == "ana"
    await world.is_quiet()


async def test_returning_to_the_agent_answers_what_was_left(world: World) -> None:
    await people_have_it(world)
    await people.reply(world.db, ORG, await conversation(world), text="Já vejo!", by="ana", channels=world.channels)
    await world.say("e o prazo?", "e o frete?")
    await world.work()
    done = await people.resolve(world.db, ORG, await conversation(world), by="ana", return_to_agent=True)
    assert done["reference"].startswith("ZA-")
    await world.work()
    assert world.sent() == ["Já vejo!", "Recebi: e o prazo? | e o frete?"]
    assert await world.one("SELECT owner FROM hot") == "agent"
    assert await world.one("SELECT state FROM handoffs") == "resolved"


async def people_have_it(world: World) -> None:
    await world.say("oi")
    await people.take(world.db, ORG, await conversation(world), by="ana")


async def test_resolving_closes_the_conversation_and_new_content_reopens_it(world: World) -> None:
    await people_have_it(world)
    await people.resolve(world.db, ORG, await conversation(world), by="ana")
    await world.work()
    assert world.graph.sends == []
    assert await world.one("SELECT state FROM conversations") == "resolved"
    await world.say("faltou um item")
    await world.work()
    assert world.sent() == ["Recebi: oi | faltou um item"]
    with pytest.raises(RefusedError):
        await people.resolve(world.db, ORG, await conversation(world), by="ana")


async def test_agent_to_person_to_agent_within_one_turn_fences_the_old_turn_out(world: World) -> None:
    world.script(SLOW)
    await world.say("oi")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await people.take(world.db, ORG, await conversation(world), by="ana")
        await people.resolve(world.db, ORG, await conversation(world), by="ana", return_to_agent=True)
        await world.until("SELECT count(*) FROM work_items WHERE state = 'completed'", 1)
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    states = [row["state"] for row in await world.rows("SELECT state FROM work_items ORDER BY opened_at")]
    assert states == ["cancelled", "completed"]


async def test_a_handoff_goes_to_somebody_else_and_every_move_names_its_person(world: World) -> None:
    await people_have_it(world)
    await people.assign(world.db, ORG, await conversation(world), assignee="bia", by="ana")
    assert await world.one("SELECT assignee FROM handoffs") == "bia"
    assert await world.one("SELECT owner_name FROM hot") == "bia"
    await people.resolve(world.db, ORG, await conversation(world), by="bia")
    with pytest.raises(RefusedError):
        await people.assign(world.db, ORG, await conversation(world), assignee="caio", by="ana")
    with pytest.raises(NotFoundError):
        await people.take(world.db, ORG, UUID(int=7), by="ana")
    moves = await world.rows("SELECT by, to_state FROM events WHERE actor = 'person' AND entity <> 'item' ORDER BY id")
    assert [(row["by"], row["to_state"]) for row in moves] == [("ana", "human"), ("ana", "bia"), ("bia", "agent")]


async def test_a_failed_item_is_tried_again_by_a_person(world: World) -> None:
    world.script("[[rules]]\nnth = 1\nstatus = 401\n[[rules]]\ntext = 'pronto'\n")
    await world.say("oi")
    await world.work()
    item_id = await world.one("SELECT id FROM work_items")
    done = await people.retry(world.db, ORG, item_id, by="ana")
    assert done["state"] == "pending"
    await world.work()
    assert world.sent() == ["Vou te passar para um atendente.", "pronto"]
    assert await world.one("SELECT attempts FROM work_items") == 1
    with pytest.raises(RefusedError):
        await people.retry(world.db, ORG, item_id, by="ana")


async def test_a_pending_and_a_running_item_can_be_cancelled(world: World) -> None:
    world.script(SLOW)
    await world.say("um")
    await people.cancel(world.db, ORG, await world.one("SELECT id FROM work_items"), by="ana", why="engano")
    await world.work()
    assert world.graph.sends == []
    await world.say("dois")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT count(*) FROM work_items WHERE state = 'processing'", 1)
        running = await world.one("SELECT id FROM work_items WHERE state = 'processing'")
        await people.cancel(world.db, ORG, running, by="ana", why="engano")
    await world.work()
    assert world.graph.sends == []
    await world.say("três")
    await world.work()
    assert world.sent() == ["Recebi: um | dois | três"]
    await world.is_quiet()


async def test_a_person_moves_an_item_to_another_class(world: World) -> None:
    await world.say("oi")
    item_id = await world.one("SELECT id FROM work_items")
    await people.prioritize(world.db, ORG, item_id, item_class="urgent", by="ana", why="cliente parado")
    assert await world.one("SELECT class FROM work_items") == "urgent"
    assert await world.one("SELECT band FROM hot") == 0
    await world.work()
    with pytest.raises(RefusedError):
        await people.prioritize(world.db, ORG, item_id, item_class="standard", by="ana", why="x")


async def test_a_person_who_takes_what_waits_for_another_has_the_handoff(world: World) -> None:
    world.script("[[rules]]\nstatus = 401\n")
    await world.say("oi")
    await world.work()
    assert await world.one("SELECT assignee FROM handoffs") == "plantao"
    await people.take(world.db, ORG, await conversation(world), by="ana", channels=world.channels)
    assert await world.one("SELECT assignee FROM handoffs") == "ana"
    assert await world.one("SELECT owner_name FROM hot") == "ana"
    rows = await world.rows("SELECT from_state, to_state, by, actor FROM events WHERE entity = 'handoff'")
    assert rows == [{"from_state": "plantao", "to_state": "ana", "by": "ana", "actor": "person"}]


async def test_retry_cancel_and_priority_are_events_with_the_person_and_the_reason(world: World) -> None:
    world.script("[[rules]]\nstatus = 401\n")
    await world.say("oi")
    await world.work()
    item_id = await world.one("SELECT id FROM work_items")
    await people.retry(world.db, ORG, item_id, by="ana")
    await people.prioritize(world.db, ORG, item_id, item_class="urgent", by="bia", why="cliente parado")
    await people.cancel(world.db, ORG, item_id, by="caio", why="engano")
    rows = await world.rows(
        "SELECT from_state, to_state, by, why FROM events WHERE actor = 'person' AND entity = 'item' ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("needs_human", "pending", "ana", "tried again"),
        ("standard", "urgent", "bia", "cliente parado"),
        ("pending", "cancelled", "caio", "engano"),
    ]
    for refused in (
        people.cancel(world.db, ORG, item_id, by="ana", why="x"),
        people.retry(world.db, ORG, item_id, by="ana"),
    ):
        with pytest.raises(RefusedError):
            await refused
    with pytest.raises(NotFoundError):
        await people.cancel(world.db, "loja-b", item_id, by="ana", why="x")


async def test_what_a_person_resolves_counts_as_completed_by_that_person(world: World) -> None:
    world.script("[[rules]]\nstatus = 401\n")
    await world.say("oi")
    await world.work()
    await people.resolve(world.db, ORG, await conversation(world), by="ana")
    row = (await world.rows("SELECT state, result FROM work_items"))[0]
    assert (row["state"], row["result"]["by"]) == ("completed", "ana")
    moves = await world.rows("SELECT by FROM events WHERE entity = 'item' AND to_state = 'completed'")
    assert [move["by"] for move in moves] == ["ana"]


async def test_cancelling_the_newer_request_does_not_drop_the_one_that_runs(world: World) -> None:
    world.script("[[rules]]\nnth = 1\nstatus = 500\ndelay_s = 0.4\n[[rules]]\nnth = 2\nstatus = 500\n" + SLOW)
    world.configure(recovery={"retry_delay_s": 0.1})
    await world.say("um")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await world.say("dois")
        newer = await world.one("SELECT id FROM work_items WHERE state = 'pending'")
        await people.cancel(world.db, ORG, newer, by="ana", why="engano")
        await world.until("SELECT count(*) FROM work_items WHERE state = 'completed'", 1)
    await world.work()
    assert world.sent() == ["Recebi: um | dois"]
    states = [row["state"] for row in await world.rows("SELECT state FROM work_items ORDER BY opened_at")]
    assert states == ["completed", "cancelled"]


async def test_after_a_handback_the_agent_answers_what_was_left_and_not_its_own_handoff_text(world: World) -> None:
    world.script("[[rules]]\nnth = 1\nstatus = 401\n[[rules]]\ntext = 'Recebi: {burst}'\n")
    await world.say("oi", "e aí?")
    await world.work()
    await people.resolve(world.db, ORG, await conversation(world), by="ana", return_to_agent=True)
    await world.work()
    assert world.sent() == ["Vou te passar para um atendente.", "Recebi: oi | e aí?"]


async def test_what_a_person_answered_is_not_tried_again(world: World) -> None:
    world.script("[[rules]]\nstatus = 401\n")
    await world.say("oi")
    await world.work()
    await people.reply(world.db, ORG, await conversation(world), text="Já vi!", by="ana", channels=world.channels)
    with pytest.raises(RefusedError, match="a person has answered"):
        await people.retry(world.db, ORG, await world.one("SELECT id FROM work_items"), by="ana")
