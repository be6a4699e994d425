"""Row ids sort by time, references can be read aloud, opaque ids come back."""

from __future__ import annotations

import time
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.core.ids import is_reference, new_id, new_reference, opaque_id, parse_opaque_id

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_new_ids_are_version_7_of_the_standard_variant() -> None:
    made = new_id()
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"


def test_new_ids_carry_the_time_and_sort_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1_790_000_000_000_000_000, 1_790_000_000_001_000_000, 1_890_000_000_000_000_000]
    made = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment)
        made.append(new_id())
    assert made == sorted(made)
    assert [one.int >> 80 for one in made] == [moment // 1_000_000 for moment in moments]


def test_new_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_790_000_000_000_000_000)
    assert len({new_id() for _ in range(1000)}) == 1000


def test_references_have_no_letters_that_are_misread() -> None:
    made = {new_reference() for _ in range(200)}
    assert len(made) == 200
    assert all(is_reference(one) and len(one) == 11 and not set(one[3:]) & set("01ILOU") for one in made)


@pytest.mark.parametrize("text", ["", "ZA-", "7F3K2QXM", "ZA-7F3K2QX0", "ZA-7F3K 2QX"])
def test_other_text_is_no_reference(text: str) -> None:
    assert not is_reference(text)


def test_a_reference_is_known_in_any_case() -> None:
    assert is_reference("za-7f3k2qxm")


@PATIENT
@given(st.uuids(), st.integers(0, 99), st.integers(0, 99))
def test_an_opaque_id_comes_back(reply_id: UUID, part: int, delivery: int) -> None:
    assert parse_opaque_id(opaque_id(reply_id, part, delivery)) == (reply_id, part, delivery)


@pytest.mark.parametrize("text", ["", "z1", "z1:x:1:1", "z2:00000000000070008000000000000001:1:1", "z1:a:b:c:d"])
def test_a_foreign_opaque_id_is_not_ours(text: str) -> None:
    assert parse_opaque_id(text) is None
