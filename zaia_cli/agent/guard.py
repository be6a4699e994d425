"""The guard: limits that stop a model which repeats itself.

Idea: counted over the whole item, so a retry does not reset it. Invariant: a trip is a ``ToolLoopError``, which is
never retried. Tested in ``tests/unit/test_loop.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from zaia_cli.core.chat import ToolCall
from zaia_cli.core.config import GuardConfig
from zaia_cli.core.errors import ToolLoopError

__all__ = ["Guard", "canonical_call"]


def canonical_call(call: ToolCall) -> str:
    """Name and arguments in a form that ignores the order of keys."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)}"


class Guard:
    """Counts calls and tokens of one item.

    Args:
        limits: ``max_identical`` of the same call, ``max_calls`` in all, ``max_tokens`` in all.
    """

    def __init__(self, limits: GuardConfig) -> None:
        self._limits = limits
        self._calls: Counter[str] = Counter()
        self._tokens = 0

    def count(self, calls: Iterable[ToolCall], tokens: int) -> None:
        """Add one step, stored or new."""
        self._calls.update(canonical_call(call) for call in calls)
        self._tokens += tokens

    def check(self) -> None:
        """Raise when a limit is crossed.

        Raises:
            ToolLoopError: Which limit, in words for the person who takes over.
        """
        worst, times = next(iter(self._calls.most_common(1)), ("", 0))
        if times > self._limits.max_identical:
            raise ToolLoopError(f"the model asked {times} times for the same call: {worst[:120]}")
        if self._calls.total() > self._limits.max_calls:
            raise ToolLoopError(f"the model asked for {self._calls.total()} calls, more than {self._limits.max_calls}")
        if self._tokens > self._limits.max_tokens:
            raise ToolLoopError(f"the turn used {self._tokens} tokens, more than {self._limits.max_tokens}")
