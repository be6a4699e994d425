"""Every code of the recorded tables, and what decides for unknown ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zaia_cli.channels.error_codes import classify

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"


def case(number: str) -> dict[str, Any]:
    found = sorted(CASES.glob(f"{number}*.json"))
    if not found:
        pytest.skip("the shared folder is not here")
    document: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
    return document


def test_every_whatsapp_code_has_its_recorded_class() -> None:
    recorded = case("068")
    wanted = recorded["expected"]["classes"]
    assert {str(code): classify("whatsapp", code) for code in recorded["input"]["codes"]} == wanted


def test_every_instagram_code_and_subcode_has_its_recorded_class() -> None:
    recorded = case("069")
    codes = recorded["input"]["codes"]
    assert [classify("instagram", code, subcode) for code, subcode in codes] == recorded["expected"]["classes"]


def test_unknown_code_that_is_transient_waits_for_evidence() -> None:
    assert classify("whatsapp", 999_999, is_transient=True) == "retry_after_reconcile"
    assert classify("whatsapp", 999_999) == "unknown_code_terminal_and_alert"


def test_known_code_is_not_softened_by_the_transient_mark() -> None:
    assert classify("whatsapp", 131026, is_transient=True) == "terminal"


def test_an_instagram_subcode_decides_nothing_on_whatsapp() -> None:
    assert classify("whatsapp", 10, 2534022) == "human"
    assert classify("instagram", 10, 2534022) == "terminal_window"


def test_a_channel_without_codes_is_an_error() -> None:
    with pytest.raises(KeyError):
        classify("console", 1)
