"""The main job: bursts in, one answer per burst out, people where the agent cannot go on."""

from __future__ import annotations

import asyncio

from tests.engine.world import CUSTOMER, World, message, whatsapp
from zaia_cli.engine.worker import Worker


async def test_three_messages_in_a_burst_get_one_answer_that_quotes_all(world: World) -> None:
    ids = await world.say("oi", "quanto custa o plano?", "o mensal")
    await world.work()
    assert world.sent() == ["Recebi: oi | quanto custa o plano? | o mensal"]
    rows = await world.rows("SELECT read_until, source_message FROM replies")
    assert rows == [{"read_until": 3, "source_message": ids[-1]}]
    assert await world.one("SELECT state FROM work_items") == "completed"
    await world.is_quiet()


async def test_redelivered_webhooks_change_nothing_but_the_counter(world: World) -> None:
    body = whatsapp([message("oi", "wamid.A")])
    assert await asyncio.gather(*(world.post(body) for _ in range(5))) == [200] * 5
    await world.work()
    assert await world.post(body) == 200
    await world.travel(6 * 86_400)
    assert await world.post(body) == 200
    await world.work()
    assert world.sent() == ["Recebi: oi"]
    assert await world.one("SELECT repeats FROM receipts") == 6
    assert await world.one("SELECT count(*) FROM messages WHERE role = 'customer'") == 1


async def test_a_message_that_arrives_during_a_turn_gets_the_next_answer(world: World) -> None:
    world.script('[[rules]]\ntext = "{history_count}: {burst}"\ndelay_s = 0.5\n')
    await world.say("quanto custa?")
    worker = asyncio.create_task(world.work())
    await world.until("SELECT state FROM work_items ORDER BY opened_at LIMIT 1", "processing")
    await world.say("e tem desconto?")
    await worker
    assert world.sent() == ["1: quanto custa?", "3: e tem desconto?"]


async def test_two_workers_share_the_load_and_answer_once(world: World) -> None:
    world.script('[[rules]]\ntext = "{burst}"\ndelay_s = 0.02\n')
    world.configure(queue={"concurrency": 5, "per_organization": 5})
    for number in range(30):
        await world.say("primeira", f"segunda {number}", customer=f"55119{number:08}")
    await asyncio.gather(world.work("worker-1"), world.work("worker-2"))
    sent = [send["text"] for send in world.graph.sends]
    assert sorted(sent) == sorted(f"primeira | segunda {number}" for number in range(30))
    workers = await world.rows("SELECT worker, count(*) FROM attempts GROUP BY worker")
    assert {row["worker"] for row in workers} == {"worker-1", "worker-2"}
    await world.is_quiet()


async def test_a_customer_who_wants_a_person_gets_one_handoff_message_and_silence_after(world: World) -> None:
    world.script(
        '[[rules]]\nburst = "pessoa"\ntext = "Um atendente vai continuar!"\ntool = "transfer_to_department"\n'
        'args = { department = "financeiro", reason = "quer uma pessoa" }\n[[rules]]\ntext = "Recebi: {burst}"\n'
    )
    await world.say("quero falar com uma pessoa")
    await world.work()
    await world.say("tem alguém aí?")
    await world.work()
    assert world.sent() == ["Vou te passar para um atendente."]
    rows = await world.rows("SELECT assignee, reason, note, state FROM handoffs")
    assert rows == [
        {
            "assignee": "ana",
            "reason": "the agent transferred to Financeiro",
            "note": "quer uma pessoa",
            "state": "open",
        }
    ]
    assert await world.one("SELECT owner FROM hot") == "human"
    assert await world.one("SELECT count(*) FROM work_items") == 1


async def test_a_model_that_repeats_itself_stops_and_a_person_takes_over(world: World) -> None:
    world.script('[[rules]]\ntool = "search_orders"\nargs = { q = "123" }\nrepeat = "forever"\n')
    await world.say("cadê meu pedido?")
    await world.work()
    assert world.sent() == ["Vou te passar para um atendente."]
    item = (await world.rows("SELECT state, attempts, error FROM work_items"))[0]
    assert (item["state"], item["attempts"], item["error"]["code"]) == ("needs_human", 1, "tool_loop")
    assert await world.one("SELECT count(*) FROM model_calls") == 4
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'human_lane'") == 1


async def test_a_worker_that_is_stopped_finishes_or_gives_back(world: World) -> None:
    world.script('[[rules]]\nnth = 1\ntool = "search_orders"\ndelay_s = 0.3\n[[rules]]\ntext = "{burst}"\n')
    await world.say("oi")
    worker = Worker(world.parts())
    running = asyncio.create_task(worker.run())
    await world.until("SELECT state FROM work_items", "processing")
    worker.stop()
    await asyncio.wait_for(running, 10)
    assert await world.one("SELECT state FROM work_items") == "pending"
    assert await world.one("SELECT attempts FROM work_items") == 0
    await world.is_quiet()
    await world.work()
    assert world.sent(CUSTOMER) == ["oi"]
    assert await world.one("SELECT count(*) FROM model_calls") == 2
