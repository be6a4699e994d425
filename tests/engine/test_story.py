"""The story of a conversation that had a retry, a handoff and a late status, told in the right order."""

from __future__ import annotations

import time

from tests.engine.world import CUSTOMER, World, whatsapp
from zaia_cli.reports.lookup import find
from zaia_cli.reports.story import conversation_story
from zaia_cli.reports.timeline import timeline


async def test_replay_tells_retry_answer_handoff_and_a_late_status_in_order(world: World) -> None:
    world.script(
        "[[rules]]\nnth = 1\nstatus = 500\n[[rules]]\nnth = 2\nstatus = 500\n"
        '[[rules]]\nburst = "pessoa"\ntool = "transfer_to_department"\nargs = { department = "Financeiro" }\n'
        '[[rules]]\ntext = "Custa R$ 49,90."\n'
    )
    world.configure(recovery={"retry_delay_s": 0.1})
    world.graph.plan(nth=1, message_id="wamid.OUT1")
    await world.say("quanto custa?")
    await world.work()
    await world.say("quero uma pessoa")
    await world.work()
    late = {"id": "wamid.OUT1", "status": "delivered", "timestamp": str(int(time.time())), "recipient_id": CUSTOMER}
    assert await world.post(whatsapp(statuses=[late])) == 200

    target = await find(world.db, f"whatsapp:{CUSTOMER}")
    story = await conversation_story(world.db, target.organization, target.conversation_id)
    lines = [f"{line.who}: {line.what}" for line in timeline(story)]
    told = "\n".join(lines)
    order = [
        told.index(text) for text in ("quanto custa?", "500", "Custa R$ 49,90.", "quero uma pessoa", "Vou te passar")
    ]
    assert order == sorted(order), told
    assert told.rindex("delivered") > told.index("Vou te passar"), told
    first, second = story["items"]
    assert [attempt["state"] for attempt in first["attempts"]] == ["failed", "succeeded"]
    assert (first["state"], second["state"]) == ("completed", "completed")
    assert story["handoffs"][0]["assignee"] == "ana"
    assert story["replies"][0]["state"] == "delivered"
