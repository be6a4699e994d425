"""Parts fit, lose nothing and never tear a character."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from zaia_cli.channels.split import split

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"
FAMILY = "👩\u200d👩\u200d👧\u200d👦"


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def visible(text: str) -> str:
    return "".join(text.split())


def test_recorded_long_reply_is_cut_at_paragraphs() -> None:
    found = sorted(CASES.glob("061*.json"))
    if not found:
        pytest.skip("the shared folder is not here")
    recorded: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
    spec, expected = recorded["input"]["reply_spec"], recorded["expected"]
    text = spec["repeat"] * spec["times"]
    parts = split(text, recorded["input"]["limit"], "utf16")
    assert len(parts) >= expected["parts_min"]
    assert max(map(utf16, parts)) <= expected["each_part_max_utf16_units"]
    assert {line for part in parts for line in part.strip().split("\n\n")} == {spec["repeat"].strip()}
    assert "\n\n".join(parts) == text


@pytest.mark.parametrize("unit", ["utf16", "utf8"])
def test_a_text_that_fits_is_unchanged(unit: Any) -> None:
    for text in ("", "a" * 20, "  oi\n"):
        assert split(text, 20, unit) == [text]


def test_each_unit_counts_its_own_way() -> None:
    assert split("ç" * 1000, 1000, "utf16") == ["ç" * 1000]
    assert split("ç" * 1000, 1000, "utf8") == ["ç" * 500, "ç" * 500]
    assert split("😀" * 4, 4, "utf16") == ["😀😀", "😀😀"]
    assert split("😀" * 4, 4, "utf8") == ["😀"] * 4


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("aaaa. bb\ncc\n\ndd ee", ["aaaa. bb\ncc", "dd ee"]),
        ("aaaa. bb\ncc dd ee", ["aaaa. bb", "cc dd ee"]),
        ("aa bbbb. cc dd ee ff", ["aa bbbb.", "cc dd ee ff"]),
        ("aaaa bbbb cccccccc", ["aaaa bbbb", "cccccccc"]),
        ("a" * 30, ["a" * 12, "a" * 12, "a" * 6]),
        ("a bbbbbbbbbbbbbbbb", ["a", "bbbbbbbbbbbb", "bbbb"]),
    ],
)
def test_the_best_break_that_fits_is_taken(text: str, parts: list[str]) -> None:
    assert split(text, 12, "utf16") == parts


@pytest.mark.parametrize("whole", [FAMILY, "🇧🇷", "👍🏽", "e\u0301"])
@pytest.mark.parametrize("unit", ["utf16", "utf8"])
def test_a_visible_character_is_never_torn(whole: str, unit: Any) -> None:
    parts = split(whole * 300, 101, unit)
    assert len(parts) > 1
    assert {cluster for part in parts for cluster in regex.findall(r"\X", part)} == {whole}
    assert "".join(parts) == whole * 300


def test_a_character_larger_than_a_part_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 30
    parts = split(text, 10, "utf8")
    assert "".join(parts) == text
    assert max(len(part.encode()) for part in parts) <= 10


def test_white_space_alone_is_one_empty_part() -> None:
    assert split(" " * 50, 10, "utf16") == [""]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*"ab. \n!ç", FAMILY, "😀", "\u0301", "\r\n"]), max_size=120))
def test_nothing_visible_is_lost_and_every_part_fits(pieces: list[str]) -> None:
    text = "".join(pieces)
    for unit, size in (("utf16", utf16), ("utf8", lambda part: len(part.encode()))):
        parts = split(text, 24, unit)  # type: ignore[arg-type]
        assert visible("".join(parts)) == visible(text)
        assert max(map(size, parts)) <= 24
