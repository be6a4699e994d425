"""Classification of error answers by status, code and, last, the provider's own words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from zaia_cli.core.errors import ModelError
from zaia_cli.models.provider_errors import http_error

CREDIT = "Your credit balance is too low to access the Anthropic API."
LIMITS = "You have reached your specified API usage limits. You will regain access on 2026-01-01."
QUOTA = "You exceeded your current quota, please check your plan."


def classified(status: int, body: Any, **headers: str) -> ModelError:
    return http_error(status, headers, body if isinstance(body, str) else json.dumps(body))


def test_recorded_429_cases_stop_only_on_structure(shared: Path) -> None:
    case = json.loads((shared / "cases/channels/074_429_quota_vs_rate.json").read_text(encoding="utf-8"))
    for raw, expected in zip(case["input"]["responses"], case["expected"]["classes"], strict=True):
        error = http_error(raw["http"], raw.get("headers", {}), json.dumps(raw["json"]))
        if expected == "stop_provider_alert":
            assert error.alerts
            assert not error.retryable
        else:
            assert error.retryable
            assert error.retry_after_s == (2.0 if expected == "retry_after_2s" else None)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": CREDIT}, "payment"),
        (429, {"message": CREDIT}, "payment"),
        (400, {"message": LIMITS}, "payment"),
        (403, {"message": "no", "code": "insufficient_quota"}, "payment"),
        (400, {"message": QUOTA}, "payment"),
        (429, {"message": QUOTA}, "rate_limit"),
        (500, {"message": CREDIT}, "transient"),
        (404, {"message": CREDIT}, "bad_request"),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, "context_length"),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}, "context_length"),
        (400, {"message": "x", "code": "context_length_exceeded"}, "context_length"),
        (400, {"message": "Output blocked by content filtering policy"}, "content_policy"),
        (400, {"message": "x", "code": "content_policy_violation"}, "content_policy"),
        (
            400,
            {"message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"},
            "unauthorized",
        ),
        (
            429,
            {"message": "Resource has been exhausted (e.g. check quota).", "status": "RESOURCE_EXHAUSTED"},
            "rate_limit",
        ),
        (429, {"message": "Quota, limit: 0, model: x", "status": "RESOURCE_EXHAUSTED"}, "payment"),
        (429, {"message": "Quota, limit: 05, model: x", "status": "RESOURCE_EXHAUSTED"}, "rate_limit"),
    ],
)
def test_status_code_and_words_decide(status: int, error: dict[str, Any], kind: str) -> None:
    assert classified(status, {"error": error}).kind == kind


@pytest.mark.parametrize(
    "words",
    [
        "I hit a rate limit, refund me",
        "your credit balance is too low, it's a shame",
        "you exceeded your current quota",
        "the prompt is too long and breaks your content filtering policy",
    ],
)
def test_echoed_customer_words_change_nothing_and_are_not_shown(words: str) -> None:
    error = classified(
        400, {"error": {"message": f"Invalid value: '{words}'. Supported: 'a', 'b'.", "code": "invalid"}}
    )
    assert error.kind == "bad_request"
    assert words not in error.message
    assert error.message == "Invalid value: '…'. Supported: 'a', 'b'."


def test_keys_are_not_shown_and_messages_are_short() -> None:
    error = classified(401, {"error": {"message": "Incorrect API key provided: sk-abcdefghijklmnop123. " + "x" * 1000}})
    assert "abcdefgh" not in error.message
    assert len(error.message) <= 300


def test_gateway_reason_is_read_from_inside() -> None:
    inner = json.dumps({"error": {"message": "spent", "code": "insufficient_quota"}})
    error = classified(429, {"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": inner}}})
    assert (error.kind, error.message, error.provider_code) == ("payment", "spent", "insufficient_quota")


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", "", "[]", "null", "7", '{"error": null}', "[" * 100_000])
def test_body_without_error_object_is_classified_by_status(body: str) -> None:
    error = classified(502, body)
    assert (error.kind, error.message, error.provider_code) == ("transient", "HTTP 502 without a message", None)


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after": "2.5"}, "", 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({}, "Please try again in 1m30s.", 90.0),
        ({}, "Please retry in 36.4s.", 36.4),
        ({}, "Please try again in 20ms.", 0.02),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({}, "slow down", None),
    ],
)
def test_retry_hint_is_read(headers: dict[str, str], message: str, seconds: float | None) -> None:
    assert classified(429, {"error": {"message": message}}, **headers).retry_after_s == pytest.approx(seconds)


def test_retry_date_is_read() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    wait_s = classified(503, "", **{"retry-after": when}).retry_after_s
    assert wait_s is not None
    assert 50 < wait_s <= 60
