"""Group commit: hot statements of one process that are ready at the same time share one round trip.

Idea: while one group of a statement is on its way, the next one fills; nothing waits for a timer. Invariant: one key
stands at most once in a group; a group that fails is bisected, so one bad row never harms its neighbours. Tested in
``tests/engine/test_committer.py``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from zaia_cli.core.errors import UnavailableError
from zaia_cli.store.database import Database
from zaia_cli.store.database_errors import RetryableDatabaseError

__all__ = ["Committer"]

_GROUP_MAX = 200
_AWAY_WAITS_S = (0.1, 0.3, 1.0, 3.0, 6.0)


@dataclass(slots=True)
class _Entry:
    key: str
    row: Mapping[str, Any]
    done: asyncio.Future[Mapping[str, Any] | None]


@dataclass(slots=True)
class _Lane:
    waiting: list[_Entry] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Committer:
    """Runs array statements for many callers.

    Args:
        db: Where to run them.
        params: Parameters that every statement may use besides its rows (``worker``).
    """

    def __init__(self, db: Database, **params: Any) -> None:
        self._db = db
        self._params = params
        self._lanes: dict[str, _Lane] = defaultdict(_Lane)

    async def run(self, name: str, key: Hashable, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Run a statement for one row, in company.

        Args:
            name: The statement; its result names its rows by a column ``key``.
            key: Which result row is ours.
            row: The row.

        Returns:
            Our result row; None when the statement returned nothing for us ("you lost").

        Raises:
            UnavailableError: The database is away, or the connection broke and the outcome is not known.
            psycopg.Error: This row breaks a constraint or a type.
        """
        entry = _Entry(str(key), row, asyncio.get_running_loop().create_future())
        lane = self._lanes[name]
        lane.waiting.append(entry)
        if lane.task is None or lane.task.done():
            lane.task = asyncio.create_task(self._drain(name, lane))
        return await asyncio.shield(entry.done)

    async def insist(self, name: str, key: Hashable, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The same for what has happened outside (money spent, a message sent): again while the database is away.

        Only for statements that change nothing the second time; gives up with ``UnavailableError`` after about 10 s.
        """
        for wait_s in _AWAY_WAITS_S:
            try:
                return await self.run(name, key, row)
            except UnavailableError:
                await asyncio.sleep(wait_s)
        return await self.run(name, key, row)

    async def _drain(self, name: str, lane: _Lane) -> None:
        await asyncio.sleep(0)
        while lane.waiting:
            group: dict[str, _Entry] = {}
            later: list[_Entry] = []
            for entry in lane.waiting:
                if entry.key in group or len(group) >= _GROUP_MAX:
                    later.append(entry)
                else:
                    group[entry.key] = entry
            lane.waiting = later
            await self._run_group(name, list(group.values()))

    async def _run_group(self, name: str, group: list[_Entry]) -> None:
        try:
            rows = await self._run_rows(name, [entry.row for entry in group])
        except psycopg.Error as error:
            if len(group) == 1:
                _fail(group, error)
                return
            middle = len(group) // 2
            await self._run_group(name, group[:middle])
            await self._run_group(name, group[middle:])
        except Exception as error:
            _fail(group, error)
        else:
            found = {str(row["key"]): row for row in rows}
            for entry in group:
                if not entry.done.done():
                    entry.done.set_result(found.get(entry.key))

    async def _run_rows(self, name: str, rows: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
        for attempt in range(3):
            try:
                return await self._db.run(name, rows, **self._params)
            except RetryableDatabaseError:
                await asyncio.sleep(0.01 * 2**attempt)
        raise UnavailableError("the database asked for a retry too often", code="database_unavailable")


def _fail(group: list[_Entry], error: BaseException) -> None:
    for entry in group:
        if not entry.done.done():
            entry.done.set_exception(error)
