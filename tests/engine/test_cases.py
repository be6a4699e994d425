"""Public bug reports as tests: messages in, turns, people (``shared/cases/channels``)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.engine.cases import load, play
from tests.engine.world import World

NOW = int(time.time())


async def turns(world: World) -> int:
    """Items that a worker took at least once."""
    return int(await world.one("SELECT count(*) FROM work_items WHERE started_at IS NOT NULL"))


async def inbound(world: World) -> list[str]:
    rows = await world.rows("SELECT text FROM messages WHERE role = 'customer' ORDER BY position")
    return [row["text"] for row in rows]


async def asked(world: World) -> int:
    return int(await world.one("SELECT count(*) FROM model_calls"))


async def test_001_a_duplicate_webhook_at_once_later_and_days_later(world: World) -> None:
    case = load("001")
    statuses = await play(world, case, NOW)
    assert statuses == case["expected"]["http_statuses"]
    assert (len(await inbound(world)), await turns(world), await asked(world)) == (1, 1, 1)
    assert world.sent() == ["Abrimos às 9h."]


async def test_002_a_batch_of_entries_changes_messages_and_statuses(world: World) -> None:
    case = load("002")
    await world.organization("loja-b", account="100000000000002")
    await world.say("antes")
    await world.say("antes", customer="5511900020000")
    await world.work()
    for number, send in enumerate(world.graph.sends, start=1):
        text = f"wamid.OUTX{1 if send['to'] == '5511900010000' else 2}"
        await world.rows(
            "UPDATE parts SET provider_message_id = %(new)s WHERE provider_message_id = %(old)s RETURNING n",
            new=text,
            old=send["message_id"],
        )
        assert number <= 2
    assert await play(world, case, NOW) == [200]
    rows = await world.rows(
        "SELECT organization_id, count(*) AS n FROM messages WHERE role = 'customer' AND text <> 'antes' GROUP BY 1"
    )
    assert {row["organization_id"]: row["n"] for row in rows} == {"loja-a": 3, "loja-b": 1}
    assert await world.one("SELECT count(*) FROM conversations") == 3
    states = await world.rows(
        "SELECT provider_message_id, state FROM parts WHERE provider_message_id LIKE %(x)s", x="%OUTX%"
    )
    assert {row["provider_message_id"]: row["state"] for row in states} == case["expected"]["status_transitions"]
    assert "Recebi: primeira | segunda" in world.sent()


async def test_004_one_unknown_item_does_not_drop_its_neighbours(world: World) -> None:
    assert await play(world, load("004"), NOW) == [200]
    rows = await world.rows("SELECT kind, starts_turn, raw FROM messages WHERE role = 'customer' ORDER BY seq")
    assert [(row["kind"], row["starts_turn"]) for row in rows] == [("text", True), ("unsupported", False)]
    assert rows[1]["raw"]["future_type"] == {"x": 1}
    assert await world.one("SELECT count(*) FROM rejected_inputs") == 1


async def test_005_three_images_of_a_new_contact_at_once(world: World) -> None:
    await play(world, load("005"), NOW)
    assert await world.one("SELECT count(*) FROM contacts") == 1
    assert await world.one("SELECT count(*) FROM conversations") == 1
    assert await turns(world) == 1
    assert world.sent()[0].count("imagem") == 3


async def test_007_a_customer_known_only_by_a_user_id(world: World) -> None:
    case = load("007")
    assert await play(world, case, NOW) == [200]
    assert await world.one("SELECT alias FROM contact_aliases") == case["expected"]["contact_key"]
    assert world.sent("BR.9000000000000001") == ["Temos sim."]


async def test_009_the_ninth_digit_is_the_same_person_and_the_answer_goes_where_it_came_from(world: World) -> None:
    await world.say("oi", customer="5541998760000")
    await world.work()
    await play(world, load("009"), NOW)
    assert await world.one("SELECT count(*) FROM contacts") == 1
    assert await world.one("SELECT count(*) FROM conversations") == 1
    assert len(world.sent("554198760000")) == 1


async def test_011_a_changed_number_is_the_same_person(world: World) -> None:
    await world.say("oi")
    await world.work()
    await play(world, load("011"), NOW)
    assert await turns(world) == 1
    await world.say("mudei de número", customer="5511900030000")
    await world.work()
    assert await world.one("SELECT count(*) FROM contacts") == 1
    assert await world.one("SELECT address FROM conversations") == "5511900030000"
    assert len(world.sent("5511900030000")) == 1


async def test_014_a_burst_within_the_window_is_one_turn(world: World) -> None:
    case = load("014")
    await play(world, case, NOW)
    assert await inbound(world) == case["expected"]["turn_input"]
    assert (await turns(world), await asked(world)) == (1, 1)
    assert world.sent() == ["O mensal custa R$ 49,90."]


async def test_015_a_message_in_the_middle_of_a_turn_gets_the_second_answer(world: World) -> None:
    await play(world, load("015"), NOW)
    assert world.sent() == ["R$ 49,90.", "Sim, 10% à vista."]
    assert await turns(world) == 2


async def test_017_a_slow_turn_is_acknowledged_first_and_not_repeated(world: World) -> None:
    await play(world, load("017"), NOW)
    assert (await turns(world), await asked(world)) == (1, 1)
    assert world.sent() == ["Resumo…"]


async def test_037_a_person_who_answers_in_the_middle_of_a_turn_silences_the_agent(world: World) -> None:
    await play(world, load("037"), NOW)
    assert world.sent() == ["Oi, eu resolvo."]
    assert await world.one("SELECT owner FROM hot") == "human"
    assert await turns(world) == 1
    states = await world.rows("SELECT state FROM work_items")
    assert [row["state"] for row in states] == ["cancelled"]
    assert await world.one("SELECT count(*) FROM events WHERE actor = 'person' AND by = 'atendente1'") > 0
    await world.is_quiet()


async def test_038_a_handoff_says_one_text_and_drops_the_models(world: World) -> None:
    case = load("038")
    call = case["input"]["llm"][0]["tool_calls"][0]
    call["name"], call["arguments"] = "transfer_to_department", {"department": "Atendimento humano"}
    await play(world, case, NOW)
    assert world.sent() == ["Vou te passar para um atendente."]
    assert await world.one("SELECT owner FROM hot") == "human"


async def test_040_an_echo_that_is_not_ours_is_a_person_taking_over(world: World) -> None:
    await play(world, load("040"), NOW)
    assert await turns(world) == 0
    assert await world.one("SELECT owner FROM hot") == "human"
    rows = await world.rows("SELECT role, text FROM messages ORDER BY position")
    assert [(row["role"], row["text"]) for row in rows] == [
        ("human", "Oi, é da loja, seu pedido chegou"),
        ("customer", "que bom, passo aí"),
    ]


async def test_043_reactions_statuses_and_thanks_do_not_reopen_a_resolved_conversation(world: World) -> None:
    await world.say("oi")
    await world.work()
    await world.rows("UPDATE conversations SET state = 'resolved' RETURNING id")
    await world.say("muito obrigada!")
    assert await world.one("SELECT state FROM conversations") == "resolved"
    case = load("043")
    reaction, status, text = case["input"]["steps"]
    case["input"]["steps"] = [reaction, status]
    await play(world, case, NOW)
    assert await world.one("SELECT state FROM conversations") == "resolved"
    case["input"]["steps"] = [text]
    await play(world, case, NOW)
    assert await world.one("SELECT state FROM conversations") == "open"
    assert await turns(world) == 2


async def test_045_reactions_start_no_turn(world: World) -> None:
    await play(world, load("045"), NOW)
    assert await turns(world) == 0
    assert world.graph.sends == []
    assert await world.one("SELECT last_customer_at FROM conversations") is None


async def test_047_statuses_alone_start_no_turn(world: World) -> None:
    await play(world, load("047"), NOW)
    assert (await turns(world), await asked(world)) == (0, 0)
    assert await world.one("SELECT count(*) FROM statuses WHERE applied_at IS NULL") == 3


async def test_048_an_edit_before_the_answer_replaces_the_text_and_after_it_is_a_note(world: World) -> None:
    await play(world, load("048"), NOW)
    assert (await turns(world), world.sent()) == (1, ["3 pizzas, certo?"])
    row = (await world.rows("SELECT text, revisions FROM messages WHERE role = 'customer'"))[0]
    assert row["text"] == "quero 3 pizzas"
    assert [revision["text"] for revision in row["revisions"]] == ["quero 2 pizzas", "quero 3 pizzas", "quero 4 pizzas"]
    assert "quero 4 pizzas" in await world.one("SELECT text FROM messages WHERE role = 'note'")


async def test_049_a_revoked_message_is_not_answered(world: World) -> None:
    await play(world, load("049"), NOW)
    assert (await turns(world), world.graph.sends) == (0, [])
    assert await world.one("SELECT deleted_at IS NOT NULL FROM messages") is True
    assert await world.one("SELECT state FROM work_items") == "cancelled"
    assert await world.one("SELECT due_at FROM hot") is None


async def test_052_unsupported_messages_get_one_courtesy_text_and_no_model(world: World) -> None:
    await world.organization(unsupported_message="Ainda não consigo abrir este tipo de mensagem.")
    await play(world, load("052"), NOW)
    assert len(await inbound(world)) == 2
    assert (await turns(world), await asked(world)) == (0, 0)
    assert world.sent() == ["Ainda não consigo abrir este tipo de mensagem."]


@pytest.mark.parametrize(
    ("number", "read"), [("053", "[imagem sem legenda, não foi possível abrir]"), ("054", "[áudio sem transcrição]")]
)
async def test_media_without_text_is_read_as_a_placeholder(world: World, number: str, read: str) -> None:
    case = load(number)
    case["input"]["llm"] = []
    await play(world, case, NOW)
    assert world.sent()[0] == f"Recebi: {read}"
    assert await turns(world) == case["expected"]["turns"]


async def test_056_interactive_messages_have_their_canonical_text(world: World) -> None:
    case = load("056")
    await play(world, case, NOW)
    assert await inbound(world) == case["expected"]["canonical"]
    rows = await world.rows("SELECT fields FROM messages WHERE role = 'customer' ORDER BY seq")
    fields = [row["fields"] for row in rows]
    assert [f["button_id"] for f in fields if "button_id" in f] == case["expected"]["ids_kept"]
    assert fields[6]["referral"]["headline"] == "Promo"
    assert await world.one("SELECT reply_to FROM messages WHERE provider_id = 'wamid.IN480'") == "wamid.OUT1"


async def test_057_text_is_stored_as_it_was_received(world: World) -> None:
    case = load("057")
    await play(world, case, NOW)
    text = case["input"]["steps"][0]["body"]["entry"][0]["changes"][0]["value"]["messages"][0]["text"]["body"]
    assert await inbound(world) == [text]


async def test_058_a_message_of_zero_width_characters_starts_nothing(world: World) -> None:
    await play(world, load("058"), NOW)
    assert (await turns(world), await asked(world)) == (0, 0)


async def test_058_an_answer_of_zero_width_characters_is_not_sent(world: World) -> None:
    world.script('[[rules]]\ntext = "\\u200b"\n')
    await world.say("oi")
    await world.work()
    assert world.sent() == ["Vou te passar para um atendente."]


async def test_060_an_empty_model_is_asked_twice_and_then_a_person_comes(world: World) -> None:
    await play(world, load("060"), NOW)
    assert world.sent() == ["Vou te passar para um atendente."]
    assert await asked(world) == 2
    assert await world.one("SELECT count(*) FROM model_calls WHERE cost_usd IS NOT NULL") == 2
    assert await world.one("SELECT error->>'code' FROM work_items") == "empty_answer"


async def test_071_a_tool_loop_is_stopped_within_its_limits(world: World) -> None:
    case = load("071")
    case["input"]["steps"] = load("014")["input"]["steps"][:1]
    await play(world, case, NOW)
    assert await asked(world) <= case["expected"]["llm_calls_max"]
    assert await world.one("SELECT count(*) FROM tool_executions") <= case["expected"]["tool_executions_max"]
    assert world.sent() == ["Vou te passar para um atendente."]


async def test_083_a_message_that_comes_days_late_goes_to_a_person(world: World) -> None:
    case = load("083")
    world.script("")
    late: dict[str, Any] = case["input"]["steps"][0]
    await play(world, {"input": {"steps": [late]}}, NOW)
    assert len(await inbound(world)) == 1
    assert (await turns(world), world.graph.sends) == (0, [])
    assert await world.one("SELECT owner FROM hot") == "human"
