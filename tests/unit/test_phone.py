"""Which written forms are the same Brazilian telephone."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.core.phone import digits, match_keys

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("phone", "keys"),
    [
        ("+55 41 99876-0000", ("5541998760000", "554198760000")),
        ("554198760000", ("554198760000", "5541998760000")),
        ("55 11 6000-0000", ("551160000000", "5511960000000")),
        ("55 11 4000-0000", ("551140000000",)),
        ("55 11 5000-0000", ("551150000000",)),
        ("+1 202 555 0100", ("12025550100",)),
        ("5541898760000", ("5541898760000",)),
        ("41998760000", ("41998760000",)),
    ],
)
def test_forms_of_one_phone(phone: str, keys: tuple[str, ...]) -> None:
    assert match_keys(phone) == keys


def test_a_landline_never_gains_a_ninth_digit() -> None:
    assert all(len(match_keys(f"5511{first}0000000")) == 1 for first in "2345")


def test_digits_drops_everything_else() -> None:
    assert digits("+55 (41) 99876-0000") == "5541998760000"


@PATIENT
@given(st.from_regex(r"55[1-9][1-9]9[6-9][0-9]{7}", fullmatch=True))
def test_both_forms_of_a_mobile_find_each_other(phone: str) -> None:
    given_form, other = match_keys(phone)
    assert given_form == phone
    assert set(match_keys(other)) == {phone, other}
