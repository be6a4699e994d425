"""Instagram payloads become events; one bad item harms nobody."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.channels.instagram import parse
from zaia_cli.core.inbound import (
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
SAMPLE = json.loads((ROOT / "fixtures" / "webhooks" / "instagram_messages.json").read_text("utf-8"))
CASE = ROOT.parent / "shared" / "cases" / "channels" / "041_echo_of_our_own_send.json"
SHOP, CUSTOMER = "17841400000000001", "900000000000001"

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def payload(**item: Any) -> dict[str, Any]:
    whole = {"sender": {"id": CUSTOMER}, "recipient": {"id": SHOP}, "timestamp": 1790000000500, **item}
    return {"object": "instagram", "entry": [{"id": SHOP, "time": 1790000000500, "messaging": [whole]}]}


def one(**item: Any) -> Any:
    (event,) = parse(payload(**item))
    return event


def test_a_text_is_read_whole() -> None:
    event = one(message={"mid": "mid.1", "text": "oi", "reply_to": {"mid": "mid.0"}})
    assert (event.channel, event.account, event.provider_id) == ("instagram", SHOP, "mid.1")
    assert (event.kind, event.text, event.starts_turn, event.reply_to) == ("text", "oi", True, "mid.0")
    assert (event.party.address, event.party.aliases) == (CUSTOMER, (f"instagram:{CUSTOMER}",))
    assert event.sent_at == datetime(2026, 9, 21, 14, 13, 20, 500_000, UTC)


def test_a_wrapped_payload_with_every_event_is_read() -> None:
    events = parse(SAMPLE)
    kinds = [Message, Message, Message, Echo, MessageRevoke, MessageEdit, Reaction, Reaction, StatusUpdate]
    kinds += [Message, Message, Ignored, Message, Rejected]
    assert [type(event) for event in events] == kinds
    rejected = events[-1]
    assert isinstance(rejected, Rejected)
    assert (rejected.path, rejected.account) == ("[0].entry[0].messaging[13]", SHOP)
    assert parse(SAMPLE[0])[:-1] == events[:-1]


def test_an_echo_belongs_to_the_customer_who_receives_it() -> None:
    event = one(sender={"id": SHOP}, recipient={"id": CUSTOMER}, message={"mid": "m", "text": "oi", "is_echo": True})
    assert isinstance(event, Echo)
    assert (event.party.address, event.text, event.provider_id) == (CUSTOMER, "oi", "m")


@pytest.mark.parametrize("flag", ["is_deleted", "is_self"])
def test_what_the_business_unsent_or_sent_to_itself_is_ignored(flag: str) -> None:
    assert one(sender={"id": SHOP}, message={"mid": "m", "is_echo": True, flag: True}) == Ignored(
        "instagram", "own message"
    )


@pytest.mark.parametrize(
    ("attachments", "kind", "text"),
    [
        (["image"], "image", "[imagem sem legenda, não foi possível abrir]"),
        (["video"], "video", "[vídeo sem legenda, não foi possível abrir]"),
        (["audio"], "audio", "[áudio sem transcrição]"),
        (["file"], "document", "[documento sem legenda, não foi possível abrir]"),
        (["share"], "share", "[publicação compartilhada, não foi possível abrir]"),
        (["audio", "audio"], "audio", "[áudio sem transcrição]\n[áudio sem transcrição]"),
        (["novo"], "unsupported", "[mensagem não suportada]"),
        ([], "unsupported", "[mensagem não suportada]"),
    ],
)
def test_attachments_have_placeholders(attachments: list[str], kind: str, text: str) -> None:
    event = one(message={"mid": "m", "attachments": [{"type": name, "payload": {}} for name in attachments]})
    assert (event.kind, event.text, event.starts_turn) == (kind, text, kind != "unsupported")


def test_the_text_beside_an_attachment_is_its_caption() -> None:
    event = one(message={"mid": "m", "text": "olha", "attachments": [{"type": "image"}]})
    assert (event.kind, event.text) == ("image", "olha")


def test_ids_of_changes_are_made_from_what_makes_them_unique() -> None:
    edit = one(message_edit={"mid": "m", "text": "novo", "num_edit": 2})
    assert (edit.provider_id, edit.original_id, edit.text) == ("m:2", "m", "novo")
    reaction = one(reaction={"mid": "m", "action": "react", "reaction": "love", "emoji": "❤️"})
    assert (reaction.provider_id, reaction.target_id, reaction.emoji) == ("m:react:1790000000500", "m", "❤️")
    assert one(reaction={"mid": "m", "action": "unreact", "emoji": "❤️"}).emoji is None
    revoke = one(message={"mid": "m", "is_deleted": True})
    assert (revoke.provider_id, revoke.original_id) == ("m", "m")


def test_postbacks_and_quick_replies_keep_their_payload() -> None:
    postback = one(postback={"mid": "m", "title": "Falar", "payload": "FALAR"})
    assert (postback.provider_id, postback.kind, postback.text) == ("m", "postback", "Falar")
    assert postback.fields == {"button_id": "FALAR"}
    quick = one(message={"mid": "m", "text": "Sim", "quick_reply": {"payload": "SIM"}, "referral": {"ref": "a"}})
    assert quick.fields == {"button_id": "SIM", "referral": {"ref": "a"}}


def test_seen_is_the_status_read() -> None:
    event = one(read={"mid": "m"})
    assert isinstance(event, StatusUpdate)
    assert (event.provider_message_id, event.status, event.account) == ("m", "read", SHOP)


def test_referrals_and_other_fields_are_ignored() -> None:
    assert one(referral={"ref": "a"}) == Ignored("instagram", "referral")
    entry = {"id": SHOP, "time": 1, "changes": [{"field": "comments", "value": {}}]}
    assert parse({"object": "instagram", "entry": [entry]}) == [Ignored("instagram", "changes")]


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": "ontem", "message": {"mid": "m", "text": "a"}},
        {"timestamp": 10**18, "message": {"mid": "m", "text": "a"}},
        {"sender": {}, "message": {"mid": "m", "text": "a"}},
        {"message": {"text": "a"}},
        {"message": {"mid": "m", "text": 5}},
        {"message": "a"},
        {"postback": {"title": "a"}},
        {"reaction": {"mid": "m", "action": "wave"}},
        {"message_edit": {"mid": "m", "text": "a", "num_edit": "x"}},
    ],
)
def test_a_malformed_item_is_rejected(change: dict[str, Any]) -> None:
    event = one(**change)
    assert isinstance(event, Rejected)
    assert event.path == "entry[0].messaging[0]"


@pytest.mark.parametrize("broken", [None, 5, {}, {"object": "page"}, {"object": "instagram"}, [5]])
def test_a_foreign_payload_is_rejected(broken: Any) -> None:
    assert [type(event) for event in parse(broken)] == [Rejected]


def test_shared_echo_case_has_no_inbound_message() -> None:
    if not CASE.exists():
        pytest.skip("the shared cases are not here")
    steps = json.loads(CASE.read_text("utf-8"))["input"]["steps"]
    events = [event for step in steps if "body" in step for event in parse(step["body"])]
    assert events
    assert not any(isinstance(event, Message | Rejected) for event in events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, below in inner for place in places(below, (*path, key))]


@PATIENT
@given(st.data())
def test_no_payload_makes_parse_raise(data: st.DataObject) -> None:
    broken = copy.deepcopy(SAMPLE)
    *way, last = data.draw(st.sampled_from(places(broken)))
    holder = broken
    for key in way:
        holder = holder[key]
    holder[last] = data.draw(JSON)
    assert all(isinstance(event, Event) for event in parse(broken))
