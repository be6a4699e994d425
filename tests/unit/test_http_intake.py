"""A generic request becomes one message or one rejection that names the key at fault."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.channels.http import parse
from zaia_cli.core.inbound import Message, Rejected

FIXTURES = Path(__file__).parents[2] / "fixtures" / "webhooks"

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


def read(**payload: Any) -> Any:
    (event,) = parse({"from": "cliente@exemplo.test", "text": "oi"} | payload, "formulario")
    return event


def test_a_full_request_is_read_whole() -> None:
    (event,) = parse(fixture("http_request"), "formulario")
    assert isinstance(event, Message)
    assert (event.channel, event.account, event.provider_id) == ("http", "formulario", "pedido-1")
    assert event.party.address == "+55 11 90001-0000"
    assert event.party.aliases == ("phone:5511900010000", "phone:551100010000")
    assert event.party.name == "Cliente Teste"
    assert event.thread == "devolucao do pedido 1234"
    assert (event.kind, event.text, event.fields) == ("text", "O produto chegou quebrado.", {"tipo": "avaria"})
    assert event.sent_at == datetime(2026, 9, 21, 12, tzinfo=UTC)
    assert event.starts_turn


def test_a_form_without_text_reads_as_its_fields() -> None:
    (event,) = parse(fixture("http_form"), "formulario")
    assert isinstance(event, Message)
    assert (event.kind, event.text) == ("form", "tipo: avaria\npedido: 1234")
    assert event.provider_id is None
    assert event.party.aliases == ("http:cliente@exemplo.test",)


def test_an_address_that_is_no_phone_is_folded_for_matching_only() -> None:
    party = read(**{"from": "José  SILVA"}).party
    assert (party.address, party.aliases) == ("José  SILVA", ("http:jose silva",))


@pytest.mark.parametrize("address", ["123456789", "pedido 5511900010000", "5511.90001.0000"])
def test_what_only_resembles_a_phone_is_no_phone(address: str) -> None:
    assert read(**{"from": address}).party.aliases[0].startswith("http:")


def test_a_request_without_a_time_is_of_now() -> None:
    before = datetime.now(UTC)
    assert before <= read().sent_at <= before + timedelta(seconds=30)


def test_a_whole_number_is_an_id_too() -> None:
    assert read(id=1234).provider_id == "1234"


def test_long_subjects_make_a_thread_that_fits_an_index() -> None:
    assert len(read(subject="a" * 5000).thread) == 300


def test_a_thread_holds_nothing_that_a_key_cannot_hold() -> None:
    assert read(subject="Nota\ud800 \x00\u200b12").thread == "nota 12"
    assert read(subject="\ud800").thread == ""


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        ({"assunto": "x"}, "assunto"),
        ({"from": None}, "from"),
        ({"from": " \u200b"}, "from"),
        ({"from": "a" * 400}, "from"),
        ({"from": "a\x00b"}, "from"),
        ({"from": "\u0301"}, "from"),
        ({"text": 5}, "text"),
        ({"text": ""}, "text"),
        ({"text": "\u200b", "fields": {}}, "text"),
        ({"fields": ["a"]}, "fields"),
        ({"name": 5}, "name"),
        ({"subject": ["a"]}, "subject"),
        ({"id": ""}, "id"),
        ({"id": True}, "id"),
        ({"at": "ontem"}, "at"),
        ({"at": "2026-09-21T09:00:00"}, "at"),
        ({"at": "0001-01-01T00:00:00+10:00"}, "at"),
        ({"at": 1790000000}, "at"),
    ],
)
def test_a_wrong_request_is_rejected_with_the_key(payload: dict[str, Any], key: str) -> None:
    event = read(**payload)
    assert isinstance(event, Rejected)
    assert event.path == key
    assert key in event.reason
    assert event.account == "formulario"


@pytest.mark.parametrize("payload", [None, [], "oi", 5])
def test_what_is_no_object_is_rejected(payload: Any) -> None:
    assert [type(event) for event in parse(payload, "formulario")] == [Rejected]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["id", "from", "name", "subject", "text", "fields", "at"])


@PATIENT
@given(st.dictionaries(KEYS, JSON, max_size=7))
def test_no_request_makes_parse_raise(payload: dict[str, Any]) -> None:
    (event,) = parse(payload, "formulario")
    assert isinstance(event, Message | Rejected)
