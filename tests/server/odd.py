"""Values that no sender should send, and payloads with one of them at every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["ODD_VALUES", "with_odd_values"]

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "\0",
    "a\0b",
    "\ud83d",
    "9" * 400,
    "x" * 5000,
    [],
    [None],
    [[[[3]]]],
    {},
    {"a\0": {"\ud83d": [1]}},
)


def with_odd_values(make: Callable[[int], Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Give every place of a payload every odd value, one at a time.

    Args:
        make: Builds a fresh payload; its argument differs at each call, for ids that must not repeat.

    Yields:
        The path to the place and the payload.
    """
    count = 0
    for path in list(_places(make(0))):
        for value in ODD_VALUES:
            count += 1
            payload = make(count)
            holder = payload
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value
            yield path, payload


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, held in inner:
        yield (*path, step)
        yield from _places(held, (*path, step))
