"""Intake: dedupe, numbering, classes, acknowledgements, requests without an id."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.engine.world import CUSTOMER, World, message, whatsapp
from zaia_cli.engine.worker import Worker


def http(text: str, **extra: Any) -> dict[str, Any]:
    return {"from": "maria@exemplo.test", "text": text, **extra}


async def test_a_repeated_request_without_an_id_joins_the_one_that_waits(world: World) -> None:
    world.configure(turn={"coalesce_s": 1, "coalesce_max_s": 5})
    first = await world.intake(http("Quero a segunda via!"))
    second = await world.intake(http("quero a SEGUNDA via"))
    assert (first[0], second[0]) == (200, 200)
    assert first[1]["reference"] == second[1]["reference"]
    assert await world.one("SELECT count(*) FROM work_items") == 1
    assert await world.one("SELECT count(*) FROM messages") == 2


async def test_a_repeat_of_a_running_request_waits_under_the_same_reference(world: World) -> None:
    world.script("[[rules]]\ntext = 'pronto'\ndelay_s = 0.4\n")
    await world.organization(duplicate_message="Seu pedido {reference} já está em andamento.")
    first = await world.intake(http("boleto"))
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        second = await world.intake(http("boleto"))
    await world.work()
    reference = first[1]["reference"]
    assert second[1]["reference"] == reference
    assert sorted(world.sent("maria@exemplo.test")) == sorted(
        ["pronto", f"Seu pedido {reference} já está em andamento."]
    )
    assert await world.one("SELECT count(*) FROM model_calls") == 1


async def test_a_repeat_of_a_finished_request_gets_the_stored_result(world: World) -> None:
    await world.intake(http("boleto"))
    await world.work()
    _, again = await world.intake(http("Boleto."))
    assert again["result"]["text"] == "Recebi: boleto"
    await world.work()
    assert await world.one("SELECT count(*) FROM model_calls") == 1
    await world.travel(700)
    await world.intake(http("boleto"))
    await world.work()
    assert await world.one("SELECT count(*) FROM model_calls") == 2


async def test_different_subjects_are_different_threads(world: World) -> None:
    await world.intake(http("oi", subject="Entrega"))
    await world.intake(http("oi", subject="Cobrança"))
    await world.work()
    assert await world.one("SELECT count(*) FROM conversations") == 2
    assert world.sent("maria@exemplo.test") == ["Recebi: oi", "Recebi: oi"]


async def test_an_acknowledgement_is_sent_at_once_and_once_per_request(world: World) -> None:
    await world.organization(ack_message="Recebemos seu pedido {reference}.")
    await world.say("oi", "tudo bem?")
    await world.work()
    reference = await world.one("SELECT reference FROM work_items")
    assert world.sent() == [f"Recebemos seu pedido {reference}.", "Recebi: oi | tudo bem?"]


async def test_a_late_acknowledgement_is_sent_only_when_the_answer_takes_longer(world: World) -> None:
    await world.organization(ack_message="Um momento.", ack_after_s=10)
    await world.say("rápida")
    await world.work()
    await world.travel(20)
    await world.work()
    assert world.sent() == ["Recebi: rápida"]
    world.script("[[rules]]\ntext = 'demorou'\ndelay_s = 0.5\n")
    await world.say("lenta")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT count(*) FROM work_items WHERE state = 'processing'", 1)
        await world.travel(11)
        await world.until("SELECT count(*) FROM replies WHERE kind = 'acknowledgement'", 1)
    await world.work()
    assert sorted(world.sent()[1:]) == ["Um momento.", "demorou"]


async def test_a_rule_raises_the_class_of_a_burst_and_alerts(world: World) -> None:
    rule = {
        "when": {"keywords": ["não chegou"]},
        "class": "urgent",
        "owner": "operacoes",
        "description": "entrega perdida",
        "alert": "supervisora",
    }
    await world.organization(priority_rules=[rule])
    await world.say("oi", "meu pedido NAO chegou")
    row = (await world.rows("SELECT class, class_rule FROM work_items"))[0]
    assert (row["class"], row["class_rule"]) == ("urgent", "entrega perdida (operacoes)")
    assert await world.one("SELECT band FROM hot") == 0
    assert await world.one("SELECT recipient FROM alerts WHERE kind = 'urgent'") == "supervisora"


async def test_a_background_item_that_waited_too_long_becomes_standard_once(world: World) -> None:
    rule = {"when": {"channel": "whatsapp"}, "class": "background", "owner": "x", "description": "sem pressa"}
    await world.organization(priority_rules=[rule])
    await world.say("oi")
    await world.travel(901)
    await world.tick()
    await world.tick()
    assert await world.one("SELECT class FROM work_items") == "standard"
    assert await world.one("SELECT band FROM hot") == 1
    assert await world.one("SELECT count(*) FROM events WHERE to_state = 'standard'") == 1


async def test_a_broken_promise_is_alerted_once(world: World) -> None:
    world.configure(queue={"reply_within_s": {"standard": 60}})
    await world.say("oi")
    await world.travel(61)
    await world.tick()
    await world.tick()
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'overdue'") == 1
    assert await world.one("SELECT overdue_at IS NOT NULL FROM work_items") is True


@pytest.mark.parametrize("change", ["edit", "revoke"])
async def test_a_change_may_come_before_its_message(world: World, change: str) -> None:
    update = {"from": CUSTOMER, "id": "wamid.C", "timestamp": str(int(time.time())), "type": change}
    update[change] = {"original_message_id": "wamid.O"}  # type: ignore[assignment]
    if change == "edit":
        update[change]["message"] = {"type": "text", "text": {"body": "três"}}  # type: ignore[index]
    assert await world.post(whatsapp([update])) == 200
    assert await world.post(whatsapp([message("dois", "wamid.O")])) == 200
    await world.work()
    assert world.sent() == (["Recebi: três"] if change == "edit" else [])
    assert await world.one("SELECT count(*) FROM pending_changes") == 0


async def test_text_with_nul_is_kept_without_it(world: World) -> None:
    assert await world.post(whatsapp([message("a\x00b", "wamid.N")])) == 200
    await world.work()
    assert world.sent() == ["Recebi: ab"]


async def test_first_messages_of_one_person_at_once_make_one_contact(world: World) -> None:
    bodies = [
        whatsapp([message(f"m{n}", f"wamid.{n}", "554198760000" if n % 2 else "5541998760000")]) for n in range(12)
    ]
    assert set(await asyncio.gather(*(world.post(body) for body in bodies))) == {200}
    assert await world.one("SELECT count(*) FROM contacts") == 1
    assert await world.one("SELECT count(*) FROM conversations") == 1


async def test_webhooks_for_the_same_conversations_in_opposite_orders_do_not_deadlock(world: World) -> None:
    customers = [f"55119{n:08}" for n in range(20)]
    bodies = []
    for turn in range(10):
        order = customers if turn % 2 else customers[::-1]
        bodies.append(whatsapp([message(f"t{turn}", f"wamid.{turn}.{customer}", customer) for customer in order]))
    assert set(await asyncio.gather(*(world.post(body) for body in bodies))) == {200}
    rows = await world.rows("SELECT seq FROM hot")
    assert [row["seq"] for row in rows] == [10] * 20


async def test_a_batch_of_a_thousand_messages_is_taken_in(world: World) -> None:
    messages = [message(f"m{n}", f"wamid.{n}", f"55119{n % 100:08}") for n in range(1000)]
    assert await world.post(whatsapp(messages)) == 200
    assert await world.one("SELECT count(*) FROM messages") == 1000
    assert await world.one("SELECT count(*) FROM work_items") == 100


async def test_an_account_of_no_company_is_rejected_and_harms_no_neighbour(world: World) -> None:
    unknown = whatsapp([message("oi", "wamid.X")], account="999999999999999")
    mixed = whatsapp([message("oi", "wamid.Y")])
    mixed["entry"] += unknown["entry"]
    assert await world.post(mixed) == 200
    rows = await world.rows("SELECT organization_id, account, reason FROM rejected_inputs")
    assert rows == [
        {
            "organization_id": None,
            "account": "999999999999999",
            "reason": "no organization has this account",
        }
    ]
    assert await world.one("SELECT provider_id FROM messages") == "wamid.Y"


async def test_a_repeat_of_a_finished_request_is_told_its_number(world: World) -> None:
    await world.organization(duplicate_message="Já temos {reference}.")
    await world.intake(http("boleto"))
    await world.work()
    _, again = await world.intake(http("BOLETO!"))
    await world.work()
    told = [send["text"] for send in world.graph.sends if send["to"] == "maria@exemplo.test"]
    assert told == ["Recebi: boleto", f"Já temos {again['reference']}."]
    assert again["duplicate"] is True
    assert again["state"] == "completed"
    repeats = await world.rows("SELECT why FROM events WHERE why LIKE 'repeat of%%'")
    assert [row["why"] for row in repeats] == [f"repeat of {again['reference']} (completed)"]


async def test_equal_requests_without_an_id_at_once_are_one_item(world: World) -> None:
    world.configure(turn={"coalesce_s": 1, "coalesce_max_s": 5})
    answers = await asyncio.gather(*(world.intake(http("quero cancelar")) for _ in range(8)))
    assert len({answer["reference"] for _, answer in answers}) == 1
    assert sum(not answer["duplicate"] for _, answer in answers) == 1
    assert await world.one("SELECT count(*) FROM work_items") == 1
    assert await world.one("SELECT seq FROM hot") == 8
    await world.work()
    assert await world.one("SELECT count(*) FROM model_calls") == 1


async def test_a_raised_class_brings_its_own_promise(world: World) -> None:
    rule = {"when": {"keywords": ["golpe"]}, "class": "urgent", "owner": "x", "description": "fraude"}
    await world.organization(priority_rules=[rule])
    world.configure(
        queue={"reply_within_s": {"urgent": 60, "standard": 3600}}, turn={"coalesce_s": 5, "coalesce_max_s": 10}
    )
    await world.say("oi", "caí num golpe")
    left_s = await world.one("SELECT extract(epoch FROM deadline_at - now())::float8 FROM work_items")
    assert 50 < left_s <= 60
    await world.travel(61)
    await world.tick()
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'overdue'") == 1


async def test_a_message_that_was_never_seen_is_edited_and_revoked_before_it_comes(world: World) -> None:
    stamp = int(time.time())
    edit = {
        "from": CUSTOMER,
        "id": "wamid.E",
        "timestamp": str(stamp),
        "type": "edit",
        "edit": {"original_message_id": "wamid.O", "message": {"type": "text", "text": {"body": "três"}}},
    }
    revoke = {
        "from": CUSTOMER,
        "id": "wamid.R",
        "timestamp": str(stamp + 1),
        "type": "revoke",
        "revoke": {"original_message_id": "wamid.O"},
    }
    assert await world.post(whatsapp([revoke])) == 200
    assert await world.post(whatsapp([edit])) == 200
    assert await world.post(whatsapp([message("dois", "wamid.O"), message("quatro", "wamid.P")])) == 200
    await world.work()
    assert world.sent() == ["Recebi: quatro"]
    rows = await world.rows("SELECT text, deleted_at IS NOT NULL AS gone FROM messages WHERE seq > 0 ORDER BY seq")
    assert rows == [{"text": "três", "gone": True}, {"text": "quatro", "gone": False}]
