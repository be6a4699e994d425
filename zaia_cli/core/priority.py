"""The class of a request: deterministic rules of the organization, in order.

Idea: only a rule or a person puts a request in the top class; a rule has an owner and a description. Invariant: a later
message of a burst can raise the class, never lower it. Tested in ``tests/unit/test_priority.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zaia_cli.core.text import fold

__all__ = ["BANDS", "ClassDecision", "band", "decide_class", "higher"]

BANDS: Mapping[str, int] = {"urgent": 0, "standard": 1, "background": 2}


@dataclass(frozen=True, slots=True)
class ClassDecision:
    """The class, the rule that decided it (empty: the default) and whom to alert."""

    item_class: str
    rule: str = ""
    alert: str = ""


def band(item_class: str) -> int:
    """The strict band of a class: 0 is served first."""
    return BANDS[item_class]


def higher(one: ClassDecision, other: ClassDecision) -> ClassDecision:
    """The more urgent of two decisions; the first one on a tie."""
    return other if BANDS[other.item_class] < BANDS[one.item_class] else one


def decide_class(
    rules: Sequence[Mapping[str, Any]], *, channel: str, text: str, fields: Mapping[str, Any]
) -> ClassDecision:
    """Take the first rule whose conditions all hold; ``standard`` when none does.

    Args:
        rules: As stored from the organization file: ``when``, ``class``, ``owner``, ``description``, ``alert``.
        channel: Channel kind of the message.
        text: Canonical text; keywords match whole words, without case and accents.
        fields: Form fields of the message; ``account_type`` among them.
    """
    for rule in rules:
        if _holds(rule["when"], channel, text, fields):
            return ClassDecision(rule["class"], f"{rule['description']} ({rule['owner']})", rule.get("alert") or "")
    return ClassDecision("standard")


def _holds(when: Mapping[str, Any], channel: str, text: str, fields: Mapping[str, Any]) -> bool:
    if when.get("channel") and when["channel"] != channel:
        return False
    if when.get("account_type") and fold(when["account_type"]) != fold(str(fields.get("account_type", ""))):
        return False
    if any(fold(str(fields.get(name, ""))) != fold(value) for name, value in (when.get("field") or {}).items()):
        return False
    keywords = when.get("keywords") or ()
    folded = fold(text)
    return not keywords or any(re.search(rf"\b{re.escape(fold(word))}\b", folded) for word in keywords)
