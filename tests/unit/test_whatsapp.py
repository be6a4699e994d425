"""WhatsApp payloads become events; one bad item harms nobody."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.channels.whatsapp import parse
from zaia_cli.core.inbound import (
    ContactMoved,
    Echo,
    Event,
    Ignored,
    Message,
    MessageEdit,
    MessageRevoke,
    Reaction,
    Rejected,
    StatusUpdate,
)

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "webhooks"
CASES = ROOT.parent / "shared" / "cases" / "channels"
CUSTOMER = "5511900010000"
PHONES = ("phone:5511900010000", "phone:551100010000")
NAMED = {"profile": {"name": "Cliente Teste"}, "wa_id": CUSTOMER}

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / f"whatsapp_{name}.json").read_text("utf-8"))


def payload(field: str = "messages", **value: Any) -> dict[str, Any]:
    whole = {"metadata": {"phone_number_id": "100000000000001"}, **value}
    return {
        "object": "whatsapp_business_account",
        "entry": [{"id": "2", "changes": [{"field": field, "value": whole}]}],
    }


def text(body: Any = "oi", **more: Any) -> dict[str, Any]:
    return {
        "from": CUSTOMER,
        "id": "wamid.1",
        "timestamp": "1790000000",
        "type": "text",
        "text": {"body": body},
        **more,
    }


def one(item: dict[str, Any], *contacts: dict[str, Any]) -> Any:
    (event,) = parse(payload(messages=[item], contacts=list(contacts)))
    return event


def case(number: str) -> tuple[list[Event], dict[str, Any]]:
    paths = sorted(CASES.glob(f"{number}_*.json"))
    if not paths:
        pytest.skip("the shared cases are not here")
    document = json.loads(paths[0].read_text("utf-8"))
    steps = document["input"]["steps"]
    return [event for step in steps if "body" in step for event in parse(step["body"])], document["expected"]


def test_a_text_is_read_whole() -> None:
    event = one(text("oi", context={"from": "551140000000", "id": "wamid.OUT"}), NAMED)
    assert (event.channel, event.account, event.provider_id) == ("whatsapp", "100000000000001", "wamid.1")
    assert (event.kind, event.text, event.starts_turn, event.reply_to) == ("text", "oi", True, "wamid.OUT")
    assert event.sent_at == datetime.fromtimestamp(1790000000, UTC)
    assert (event.party.address, event.party.aliases, event.party.name) == (CUSTOMER, PHONES, "Cliente Teste")
    assert event.raw["id"] == "wamid.1"
    assert event.thread == ""


def test_every_entry_change_message_and_status_is_walked() -> None:
    events = parse(fixture("batch"))
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Message", "Message", "Message", "Message", "Rejected", "StatusUpdate", "Ignored"]
    rejected = events[4]
    assert isinstance(rejected, Rejected)
    assert rejected.path == "entry[0].changes[1].value.messages[2]"
    assert rejected.reason == "timestamp is not a whole number"
    assert rejected.account == "100000000000001"
    assert rejected.raw["id"] == "wamid.FIXBAD"
    assert events[6] == Ignored("whatsapp", "account_update")


def test_every_type_has_its_canonical_text() -> None:
    events = parse(fixture("types"))
    assert [(event.kind, event.text) for event in events if isinstance(event, Message)] == [
        ("image", "[imagem sem legenda, não foi possível abrir]"),
        ("image", "a caixa chegou assim"),
        ("video", "[vídeo sem legenda, não foi possível abrir]"),
        ("audio", "[áudio sem transcrição]"),
        ("document", "[documento sem legenda, não foi possível abrir: nota.pdf]"),
        ("sticker", "[figurinha, não foi possível abrir]"),
        ("location", "localização -23.5,-46.6 (Loja Exemplo, Rua das Flores, 10)"),
        ("contacts", "contato: Contato Teste +55 31 90003-0000"),
        ("interactive", "Cancelar"),
        ("interactive", "Expressa — 1 a 2 dias"),
        ("button", "Sim"),
        ("order", "pedido: 2 x sku-1 (BRL 30)"),
        ("unsupported", "[mensagem não suportada]"),
        ("text", "falando no grupo"),
    ]


def test_group_and_unsupported_messages_are_kept_and_start_no_turn() -> None:
    messages = [event for event in parse(fixture("types")) if isinstance(event, Message)]
    assert [message.starts_turn for message in messages] == [True] * 12 + [False, False]
    assert messages[-1].fields == {"group_id": "group-0001"}


@pytest.mark.parametrize("kind", ["text", "image", "interactive", "button", "order", "location", "contacts", "novo"])
def test_a_type_without_its_object_is_unsupported(kind: str) -> None:
    event = one({"from": CUSTOMER, "id": "wamid.1", "timestamp": "1", "type": kind})
    assert (event.kind, event.text, event.starts_turn) == ("unsupported", "[mensagem não suportada]", False)


def test_an_order_with_a_note_and_several_products_reads_as_text() -> None:
    products = [
        {"product_retailer_id": name, "quantity": 1, "item_price": 29.9, "currency": "BRL"} for name in ("a", "b")
    ]
    event = one(text(type="order", order={"text": "sem laço", "product_items": products}))
    assert event.text == "pedido: 1 x a (BRL 29.9); 1 x b (BRL 29.9)\nsem laço"


def test_what_surrounds_a_message_is_kept_for_rules() -> None:
    referral, product = {"source_id": "4"}, {"catalog_id": "3"}
    context = {"forwarded": True, "referred_product": product}
    fields = one(text(referral=referral, context=context)).fields
    assert fields == {"referral": referral, "forwarded": True, "referred_product": product}


@pytest.mark.parametrize("body", ["", " \n", "\u200b\u200d\ufeff \n", "\u2060\u00ad"])
def test_text_that_shows_nothing_is_kept_as_received_and_starts_no_turn(body: str) -> None:
    event = one(text(body))
    assert (event.text, event.starts_turn) == (body, False)


def test_a_sender_without_a_phone_is_known_by_user_id() -> None:
    (event,) = parse(fixture("username"))
    assert isinstance(event, Message)
    assert event.party.address == "BR.9000000000000001"
    assert event.party.aliases == ("bsuid:BR.9000000000000001",)
    assert event.party.name == "Cliente Teste"


def test_phone_and_user_id_are_both_aliases_wherever_they_stand() -> None:
    both = (*PHONES, "bsuid:BR.9")
    assert one(text(from_user_id="BR.9")).party.aliases == both
    assert one(text(), {**NAMED, "user_id": "BR.9"}).party.aliases == both
    item = text(from_user_id="BR.9")
    del item["from"]
    assert one(item, {**NAMED, "user_id": "BR.9"}).party.aliases == both


def test_a_contact_of_somebody_else_lends_neither_name_nor_alias() -> None:
    party = one(text(), {"profile": {"name": "Outra"}, "wa_id": "5511900090000", "user_id": "BR.1"}).party
    assert (party.aliases, party.name) == (PHONES, None)


def test_both_brazilian_forms_are_aliases_and_the_address_stays_as_received() -> None:
    party = one(text(**{"from": "554198760000"})).party
    assert party.address == "554198760000"
    assert party.aliases == ("phone:554198760000", "phone:5541998760000")


def test_reactions_are_read_and_an_empty_emoji_takes_one_back() -> None:
    reactions = [{"emoji": "❤️"}, {"emoji": ""}, {}]
    events = [one(text(type="reaction", reaction={"message_id": "wamid.OUT", **each})) for each in reactions]
    assert all(isinstance(event, Reaction) and event.target_id == "wamid.OUT" for event in events)
    assert [event.emoji for event in events] == ["❤️", None, None]


def test_edits_revokes_moves_and_echoes_are_read() -> None:
    _, edit, revoke, moved, echo = parse(fixture("changes"))
    assert isinstance(edit, MessageEdit)
    assert (edit.kind, edit.text) == ("text", "quero 3 pizzas")
    assert edit.original_id != edit.provider_id
    assert isinstance(revoke, MessageRevoke)
    assert revoke.original_id == "wamid.FIX001"
    assert isinstance(moved, ContactMoved)
    assert (moved.old.address, moved.new.address) == (CUSTOMER, "5511900040000")
    assert isinstance(echo, Echo)
    assert (echo.party.address, echo.text) == (CUSTOMER, "Oi, é da loja")


def test_other_system_messages_are_ignored() -> None:
    assert one(text(type="system", system={"type": "customer_identity_changed"})) == Ignored(
        "whatsapp", "system customer_identity_changed"
    )


def test_statuses_are_read_with_error_and_opaque_id() -> None:
    events = [event for event in parse(fixture("statuses")) if isinstance(event, StatusUpdate)]
    assert [event.status for event in events] == ["sent", "delivered", "read", "read", "failed"]
    failed = events[-1]
    assert (failed.error_code, failed.error) == (131026, "Message undeliverable: Message Undeliverable.")
    assert failed.opaque_id == "z1:00000000000070008000000000000001:1:1"
    assert failed.at == datetime.fromtimestamp(1790000105, UTC)


def test_a_status_that_zaia_does_not_know_is_ignored() -> None:
    status = {"id": "wamid.1", "status": "deleted", "timestamp": "1", "recipient_id": CUSTOMER}
    assert parse(payload(statuses=[status])) == [Ignored("whatsapp", "status deleted")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"timestamp": "ontem"}, "timestamp"),
        ({"timestamp": "-1"}, "timestamp"),
        ({"timestamp": "9" * 18}, "calendar"),
        ({"timestamp": None}, "timestamp"),
        ({"id": ""}, "id"),
        ({"id": "a" * 301}, "id"),
        ({"id": "a\x00b"}, "id"),
        ({"from": None}, "neither from nor from_user_id"),
        ({"from": "grupo"}, "phone"),
        ({"text": {"body": 5}}, "body"),
        ({"text": "oi"}, "text"),
        ({"type": None}, "type"),
        ({"type": "location", "location": {"latitude": 10**400, "longitude": 0}}, "latitude is out of range"),
        ({"type": "edit", "edit": {"message": {}}}, "original_message_id"),
        ({"type": "system", "system": {"type": "user_changed_number"}}, "from"),
    ],
)
def test_a_malformed_message_is_rejected_beside_its_neighbours(change: dict[str, Any], reason: str) -> None:
    before, bad, after = parse(payload(messages=[text("antes"), text(**change), text("depois")]))
    assert isinstance(before, Message)
    assert isinstance(after, Message)
    assert isinstance(bad, Rejected)
    assert bad.path == "entry[0].changes[0].value.messages[1]"
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (None, "object"),
        ({"object": "instagram"}, "object"),
        ({"object": "whatsapp_business_account"}, "entry"),
        ({"object": "whatsapp_business_account", "entry": [5]}, "entry[0]"),
        ({"object": "whatsapp_business_account", "entry": [{}]}, "entry[0].changes"),
        ({"object": "whatsapp_business_account", "entry": [{"changes": [{}]}]}, "entry[0].changes[0].field"),
        (payload(metadata={}), "entry[0].changes[0].value"),
        (payload(messages={}), "entry[0].changes[0].value.messages"),
        (payload(messages=["x"]), "entry[0].changes[0].value.messages[0]"),
    ],
)
def test_a_broken_envelope_is_rejected_with_its_path(broken: Any, path: str) -> None:
    (event,) = parse(broken)
    assert isinstance(event, Rejected)
    assert event.path == path


def test_shared_canonical_texts_hold() -> None:
    events, expected = case("056")
    messages = [event for event in events if isinstance(event, Message)]
    assert [message.text for message in messages] == expected["canonical"]
    assert [m.fields["button_id"] for m in messages if "button_id" in m.fields] == expected["ids_kept"]
    assert messages[0].reply_to == expected["reply_to"]["IN480"]
    assert any("referral" in message.fields for message in messages)


def test_shared_media_cases_hold() -> None:
    image, _ = case("053")
    voice, expected = case("054")
    assert image[0].text == "[imagem sem legenda, não foi possível abrir]"  # type: ignore[union-attr]
    assert [voice[0].text] == expected["turn_input"]  # type: ignore[union-attr]


def test_shared_batch_and_poison_cases_hold() -> None:
    events, expected = case("002")
    assert sum(isinstance(event, Message) for event in events) == expected["inbound_rows"]
    assert [event.what for event in events if isinstance(event, Ignored)] == expected["ignored_fields"]
    assert {e.provider_message_id: e.status for e in events if isinstance(e, StatusUpdate)} == expected[
        "status_transitions"
    ]
    events, expected = case("004")
    messages = [event for event in events if isinstance(event, Message)]
    assert len(messages) == expected["inbound_rows"]
    assert (messages[1].kind, messages[1].starts_turn) == ("unsupported", False)
    assert messages[1].raw["future_type"] == {"x": 1}
    assert isinstance(events[-1], Rejected)


def test_shared_identity_cases_hold() -> None:
    (nameless,), expected = case("007")
    assert nameless.party.aliases == (expected["contact_key"],)  # type: ignore[union-attr]
    (ninth,), expected = case("009")
    aliases = ninth.party.aliases  # type: ignore[union-attr]
    assert set(aliases) == {f"phone:{key}" for key in expected["match_keys"]}
    (moved,), expected = case("011")
    assert isinstance(moved, ContactMoved)
    assert [moved.old.address, moved.new.address] == expected["contact_c1_wa_ids"]


def test_shared_change_echo_and_empty_cases_hold() -> None:
    events, _ = case("048")
    assert [getattr(e, "text", "") for e in events] == ["quero 2 pizzas", "quero 3 pizzas", "quero 4 pizzas"]
    assert [type(event) for event in case("049")[0]] == [Message, MessageRevoke]
    assert [type(event) for event in case("040")[0]] == [Echo, Message]
    assert [event.kind for event in case("052")[0]] == ["unsupported"] * 2  # type: ignore[union-attr]
    assert [event.emoji for event in case("045")[0]] == ["❤️", None, None]  # type: ignore[union-attr]
    assert not case("058")[0][0].starts_turn  # type: ignore[union-attr]
    bodies, _ = case("057")
    assert bodies[0].text == bodies[0].raw["text"]["body"]  # type: ignore[union-attr]
    failed, expected = case("008")
    assert {event.error_code for event in failed} == {expected["error_code"]}  # type: ignore[union-attr]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, below in inner for place in places(below, (*path, key))]


SAMPLES = [fixture(name) for name in ("batch", "types", "changes", "statuses", "username")]


@PATIENT
@given(st.data())
def test_no_payload_makes_parse_raise(data: st.DataObject) -> None:
    broken = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    *way, last = data.draw(st.sampled_from(places(broken)))
    holder = broken
    for key in way:
        holder = holder[key]
    holder[last] = data.draw(JSON)
    assert all(isinstance(event, Event) for event in parse(broken))


@PATIENT
@given(JSON)
def test_no_foreign_json_makes_parse_raise(payload: Any) -> None:
    assert [type(event) for event in parse(payload)] == [Rejected]
