"""Signatures are over raw bytes; nothing a stranger sends makes the check raise."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.channels.signature import challenge, verify_signature

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"
BODY = '{"name": "João 😀"}'.encode()
QUERY = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": "token-ç"}

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sign(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def case(name: str) -> dict[str, Any]:
    path = CASES / name
    if not path.exists():
        pytest.skip("the shared cases are not here")
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def test_signature_tells_whose_secret_signed() -> None:
    assert verify_signature(BODY, sign(BODY, "b"), ["a", "b", "c"]) == "b"
    assert verify_signature(BODY, sign(BODY, "d"), ["a", "b", "c"]) is None
    assert verify_signature(BODY, sign(BODY, "a"), []) is None


def test_signature_is_over_the_bytes_and_not_over_equal_json() -> None:
    reserialised = json.dumps(json.loads(BODY)).encode()
    assert verify_signature(reserialised, sign(BODY, "a"), ["a"]) is None


def test_an_empty_secret_proves_nothing() -> None:
    assert verify_signature(BODY, sign(BODY, ""), [""]) is None


@pytest.mark.parametrize("header", [None, "", "sha256=", "sha1=00", "sha256=é", "\udc80", "sha256=" + "0" * 64])
def test_an_odd_header_is_only_refused(header: str | None) -> None:
    assert verify_signature(BODY, header, ["a"]) is None


def test_the_digest_without_its_prefix_is_refused() -> None:
    assert verify_signature(BODY, sign(BODY, "a").removeprefix("sha256="), ["a"]) is None


@PATIENT
@given(st.binary(max_size=50), st.text(max_size=80), st.lists(st.text(max_size=10), max_size=3))
def test_no_input_makes_the_check_raise(body: bytes, header: str, secrets: list[str]) -> None:
    assert verify_signature(body, header, secrets) is None


def test_shared_signature_case_holds() -> None:
    document = case("012_signature_raw_bytes_unicode.json")
    accepted = [
        verify_signature(
            base64.b64decode(request["body_b64"]),
            request.get("X-Hub-Signature-256"),
            [document["input"]["app_secret"]],
        )
        is not None
        for request in document["input"]["requests"]
    ]
    assert accepted == document["expected"]["accepted"]


def test_challenge_is_answered_for_any_known_token() -> None:
    assert challenge(QUERY, ["other", "token-ç"]) == "1158201444"


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        ({}, ["other"]),
        ({}, []),
        ({"hub.mode": "unsubscribe"}, ["token-ç"]),
        ({"hub.verify_token": ""}, [""]),
        ({"hub.verify_token": "\udc80"}, ["token-ç"]),
    ],
)
def test_challenge_is_refused(change: dict[str, str], tokens: list[str]) -> None:
    assert challenge(QUERY | change, tokens) is None


def test_challenge_without_parameters_is_refused() -> None:
    assert challenge({}, ["", "token"]) is None


def test_shared_challenge_case_holds() -> None:
    document = case("013_hub_challenge.json")
    for request, response in zip(document["input"]["requests"], document["expected"]["responses"], strict=True):
        params = dict(parse_qsl(urlsplit(request.removeprefix("GET ")).query))
        assert challenge(params, [document["input"]["verify_token"]]) == response.get("body"), request
