"""Tool calls from providers, made safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zaia_cli.models.tool_calls import RawCall, normalised_calls, parse_arguments


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("null", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}```', {"a": 1}),
        ('{"a": "x\\u0000y\\ud83d"}', {"a": "xy"}),
    ],
)
def test_usable_arguments_become_an_object(raw: object, expected: dict[str, Any]) -> None:
    assert parse_arguments(raw) == (expected, None)


@pytest.mark.parametrize("raw", ["[]", [], 7, '"text"', '{"a": 1', "query = 'x'", '{"a": NaN}', "[" * 100_000])
def test_unusable_arguments_become_a_sentence(raw: object) -> None:
    arguments, error = parse_arguments(raw)
    assert arguments is None
    assert error is not None
    assert error.endswith(".")


def test_recorded_arguments_of_local_models_never_run_a_guess(shared: Path) -> None:
    case = json.loads((shared / "cases/channels/077_malformed_tool_json.json").read_text(encoding="utf-8"))
    for raw, outcome in zip(case["input"]["arguments_raw"], case["expected"]["outcome"], strict=True):
        arguments, error = parse_arguments(raw)
        if outcome == "run":
            assert (arguments, error) == ({"day": "2026-10-06"}, None)
        else:
            # What is left for the tool's own schema: nothing given, or a day of the wrong type.
            assert error is not None or arguments in ({}, {"day": 6})


def test_cut_answer_runs_no_call() -> None:
    calls = normalised_calls([RawCall("a", "x", '{"n": 1}'), RawCall("b", "y", "{}")], is_cut=True)
    assert [call.arguments for call in calls] == [None, None]
    assert all(call.error for call in calls)


def test_ids_are_kept_or_made_unique_in_the_conversation() -> None:
    long_id = "call_1__thought__" + "QUJD" * 300
    raw = [RawCall(long_id, "x", '{"n": 1}'), RawCall(long_id, "x", '{"n": 2}'), RawCall("", "x", '{"n": 3}')]
    calls = normalised_calls([*raw, RawCall("used", "x", '{"n": 4}')], is_cut=False, taken_ids=["used"])
    assert calls[0].id == long_id
    assert len({call.id for call in calls} | {"used"}) == 5


def test_identical_parallel_calls_become_one() -> None:
    raw = [RawCall("a", "x", '{"n": 1, "m": 2}'), RawCall("b", "x", {"m": 2, "n": 1}), RawCall("c", "y", {"n": 1})]
    assert [call.id for call in normalised_calls(raw, is_cut=False)] == ["a", "c"]


def test_malformed_calls_are_not_merged() -> None:
    raw = [RawCall("a", "x", "{"), RawCall("b", "x", "{")]
    assert len(normalised_calls(raw, is_cut=False)) == 2


def test_nameless_call_is_an_error_for_the_model() -> None:
    (call,) = normalised_calls([RawCall("a", None, "{}")], is_cut=False)
    assert (call.name, call.arguments) == ("unnamed", None)
    assert call.error is not None
