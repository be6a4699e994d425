"""Payloads that are too deep or too large are refused before they are parsed."""

from __future__ import annotations

from typing import Any

import pytest

from zaia_cli.channels.bounds import check_bounds
from zaia_cli.core.errors import ConfigError


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = [value]
    return value


def test_depth_is_counted_from_the_outermost_level() -> None:
    check_bounds(nested(32))
    with pytest.raises(ConfigError, match="32 levels") as caught:
        check_bounds(nested(33))
    assert (caught.value.code, caught.value.exit_code) == ("payload", 2)


def test_a_very_deep_payload_is_refused_and_not_recursed_into() -> None:
    with pytest.raises(ConfigError):
        check_bounds(nested(100_000))


def test_messages_and_statuses_of_all_changes_are_counted_together() -> None:
    changes: list[Any] = [{"value": {"messages": [{}] * 2, "statuses": [{}]}}, {"value": {"statuses": [{}] * 2}}]
    payload = {"entry": [{"changes": changes}]}
    check_bounds(payload, max_items=5)
    with pytest.raises(ConfigError, match="more than 4"):
        check_bounds(payload, max_items=4)


def test_instagram_items_count_too() -> None:
    with pytest.raises(ConfigError):
        check_bounds([{"entry": [{"messaging": [{}] * 3}]}], max_items=2)


@pytest.mark.parametrize("payload", [None, 5, "a", [], {}])
def test_small_payloads_pass(payload: Any) -> None:
    check_bounds(payload, max_items=0)
