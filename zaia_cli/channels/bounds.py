"""Limits on a payload's shape, checked before it is parsed.

Idea: a parser that walks everything must not be handed everything. Invariant: the check itself uses no recursion and
stops at the first limit. Tested in ``tests/unit/test_bounds.py``.
"""

from __future__ import annotations

from typing import Any

from zaia_cli.core.errors import ConfigError

__all__ = ["check_bounds"]

_ITEM_KEYS = frozenset({"messages", "statuses", "message_echoes", "messaging"})


def check_bounds(payload: Any, *, max_depth: int = 32, max_items: int = 1000) -> None:
    """Refuse a payload that is nested too deeply or holds too many items.

    Args:
        payload: Parsed JSON.
        max_depth: Levels of objects and lists, the outermost being the first.
        max_items: Messages, statuses, echoes and Instagram items together.

    Raises:
        ConfigError: Code ``payload``: the input is wrong and nothing was stored.
    """
    level, depth, items = [payload], 0, 0
    while level := [value for value in level if isinstance(value, dict | list)]:
        depth += 1
        if depth > max_depth:
            raise ConfigError(f"the payload is nested more than {max_depth} levels deep", code="payload")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                items += sum(len(found) for key in _ITEM_KEYS if isinstance(found := value.get(key), list))
            below.extend(value.values() if isinstance(value, dict) else value)
        if items > max_items:
            raise ConfigError(f"the payload holds more than {max_items} messages and statuses", code="payload")
        level = below
