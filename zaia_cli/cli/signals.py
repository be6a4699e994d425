"""Ending a command that runs until it is told to stop.

Idea: the first SIGTERM or SIGINT asks politely, a second SIGINT ends at once. Invariant: after the block the process's
signal handlers are what they were. Tested with real processes in ``tests/cli/test_run_worker.py``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["stop_requested", "told_to_stop"]


@contextmanager
def told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at the first SIGTERM or SIGINT; after it SIGINT is a ``KeyboardInterrupt`` again."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGTERM, signal.SIGINT)

    def first() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    for number in handled:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextmanager
def stop_requested() -> Iterator[asyncio.Event]:
    """Give an event that the first SIGTERM or SIGINT sets."""
    event = asyncio.Event()
    with told_to_stop(event.set):
        yield event
