"""Telephone numbers: which written forms are the same person.

Idea: match on every plausible form, answer the form that was received. Invariant: nothing here rewrites an address that
is sent to. Tested in ``tests/unit/test_phone.py``.
"""

from __future__ import annotations

import re

__all__ = ["digits", "match_keys"]

_NOT_DIGITS = re.compile(r"\D+")


def digits(phone: str) -> str:
    """Keep the digits of ``phone``."""
    return _NOT_DIGITS.sub("", phone)


def match_keys(phone: str) -> tuple[str, ...]:
    """List the forms under which the same Brazilian mobile number is known, the given one first.

    ``55`` + area code + 9 digits with a leading 9 is also known without it; with 8 digits starting 6 to 9, also with
    it. Landlines and other countries have one form.

    Source:
        ``shared/facts/channels.md`` section 4.
    """
    number = digits(phone)
    if number.startswith("55") and len(number) == 13 and number[4] == "9":
        return number, number[:4] + number[5:]
    if number.startswith("55") and len(number) == 12 and number[4] in "6789":
        return number, number[:4] + "9" + number[4:]
    return (number,)
