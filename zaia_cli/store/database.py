"""The psycopg door to the database: named statements over arrays, prepared, through a pool.

Idea: a hot statement takes ONE array parameter, ``rows``, sent as jsonb and read back by ``jsonb_to_recordset(%(rows)s)
AS r(…)``, so that one turn or fifty is the same prepared statement. A statement alone is its own transaction (one round
trip). Invariant: a commit whose outcome is not known never looks like one that failed. Tested in
``tests/store/test_database.py``.
"""

from __future__ import annotations

import asyncio
import random
import re
import selectors
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from json import dumps
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import ConnStatus
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from zaia_cli.core.errors import RefusedError, UnavailableError
from zaia_cli.store.database_errors import (
    CommitUnknownError,
    RetryableDatabaseError,
    connection_settings,
    describe_dsn,
    translate_error,
    translated,
)
from zaia_cli.store.statements import statement

__all__ = [
    "CommitUnknownError",
    "Connection",
    "Database",
    "RetryableDatabaseError",
    "Session",
    "encode_json",
    "has_pgvector",
]

Connection = psycopg.AsyncConnection[DictRow]
T = TypeVar("T")

_OPEN_TIMEOUT_S = 6.0
_POOL_TIMEOUT_S = 5.0
_PING_AFTER_S = 10.0
_PING_TIMEOUT_S = 5.0
_RECONNECT_MAX_S = 5.0
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Session:
    """One open transaction; made by :meth:`Database.transaction`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, name: str, rows: Sequence[Mapping[str, Any]] | None = None, /, **params: Any) -> list[DictRow]:
        """Run a named statement inside this transaction.

        Args:
            name: ``file.statement`` of ``store/sql``.
            rows: The array parameter, JSON-encoded by :func:`encode_json`; absent keys read as null.
            params: Other parameters by name; a dict is sent as jsonb, NUL characters are dropped from text.

        Returns:
            The rows it returned, in the statement's order; empty when it returns none.

        Raises:
            UnavailableError: The database is away; the transaction did not commit.
            RetryableDatabaseError: Run the whole transaction again.
            psycopg.IntegrityError, psycopg.DataError: The rows break a constraint or a type.
        """
        return await _execute(self._connection, statement(name), _bind(rows, params))

    async def execute(self, sql: LiteralString, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Run SQL that has no name; the same errors as :meth:`run`."""
        return await _execute(self._connection, sql, _bind(None, params or {}))


class Database:
    """A pool of connections to one database. Use :meth:`open`; it is also an async context manager."""

    def __init__(self, dsn: str, pool: AsyncConnectionPool[Connection]) -> None:
        self.dsn = dsn
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, *, pool_size: int = 8) -> Self:
        """Connect, check the server's version and open a pool of at most ``pool_size`` connections.

        Args:
            dsn: libpq URL or keywords; its ``connect_timeout`` (seconds) overrides the default of 5.

        Raises:
            ConfigError: The text is not a connection string.
            UnavailableError: No answer within about 5 s, or refused. The message names host and database, no password.
            RefusedError: The server is older than PostgreSQL 15.
        """
        where = describe_dsn(dsn)
        settings = connection_settings(dsn)
        try:
            with translated():
                async with (
                    asyncio.timeout(_OPEN_TIMEOUT_S if "connect_timeout" in settings else None),
                    await psycopg.AsyncConnection.connect(dsn, autocommit=True, **settings) as first,
                ):
                    version = first.info.server_version
        except (UnavailableError, TimeoutError) as error:
            reason = error.message.strip() if isinstance(error, UnavailableError) else "no answer from the database"
            hint = "start it or correct the URL; leave database.url empty for the embedded one"
            raise UnavailableError(f"{reason} [{where}]", hint=hint, code="database_unavailable") from error
        if version < 150000:
            raise RefusedError(
                f"PostgreSQL {version // 10000} at {where} is too old",
                hint="Zaia needs PostgreSQL 15 or later; leave database.url empty for the embedded one",
                code="database_too_old",
            )
        pool = AsyncConnectionPool[Connection](
            dsn,
            kwargs={"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0, **settings},
            min_size=1,
            max_size=pool_size,
            timeout=_POOL_TIMEOUT_S,
            configure=_configure,
            reconnect_timeout=_POOL_TIMEOUT_S,
            open=False,
        )
        with translated():
            await pool.open()
        return cls(dsn, pool)

    async def close(self) -> None:
        """Close the pool; calling twice is safe."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Open a READ COMMITTED transaction; commit when the block ends, roll back when it raises.

        A cancellation that arrives during COMMIT leaves the outcome open, like a broken connection.

        Raises:
            CommitUnknownError: The connection broke during COMMIT: read back before doing anything again.
            UnavailableError, RetryableDatabaseError: Nothing was committed.
        """
        with translated():
            async with self._connection() as connection:
                await connection.execute("BEGIN", prepare=False)
                yield Session(connection)
                try:
                    committed = await connection.execute("COMMIT", prepare=False)
                except psycopg.Error as error:
                    raise _outcome(error, connection) from error
                if committed.statusmessage != "COMMIT":
                    raise psycopg.errors.InFailedSqlTransaction("a statement failed and the block went on")

    async def run(self, name: str, rows: Sequence[Mapping[str, Any]] | None = None, /, **params: Any) -> list[DictRow]:
        """Run one named statement as its own transaction, in one round trip; arguments as :meth:`Session.run`.

        Raises:
            CommitUnknownError: The connection broke while the statement ran: it may have been committed.
            UnavailableError, RetryableDatabaseError: Nothing was committed.
        """
        with translated():
            async with self._connection() as connection:
                try:
                    return await _execute_raw(connection, statement(name), _bind(rows, params))
                except psycopg.Error as error:
                    raise _outcome(error, connection) from error

    async def with_retries(self, work: Callable[[Session], Awaitable[T]], attempts: int = 3) -> T:
        """Run ``work`` in a transaction, again from its start when the database asks for it (deadlock and the like).

        ``work`` must have no effect outside the transaction. A :class:`CommitUnknownError` is never retried.
        """
        for attempt in range(1, attempts + 1):
            try:
                async with self.transaction() as session:
                    return await work(session)
            except RetryableDatabaseError:
                if attempt == attempts:
                    raise
                await asyncio.sleep(random.uniform(0.005, 0.02) * 2**attempt)
        raise ValueError("attempts must be at least 1")

    async def notify(self) -> None:
        """Wake listeners (``NOTIFY zaia_work``), outside any transaction. Best effort: polling stands behind it."""
        try:
            with translated():
                async with self._connection(timeout_s=1.0) as connection:
                    await connection.execute("NOTIFY zaia_work")
        except UnavailableError:
            return

    async def listen(self) -> AsyncGenerator[None]:
        """Yield once whenever there may be new work: after every (re)connection, and for each burst of notifications.

        Uses a connection of its own, outside the pool. It pings itself after 10 quiet seconds and gives the answer 5,
        so a dead connection is noticed within 15 s; then it reconnects for ever, waiting 0.1 s up to 5 s between
        tries. Close it (``contextlib.aclosing``) to end it.
        """
        wait_s = 0.1
        while True:
            try:
                settings = connection_settings(self.dsn)
                async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, **settings) as connection:
                    await connection.execute("LISTEN zaia_work")
                    wait_s = 0.1
                    yield
                    while True:
                        if await _hear(connection):
                            yield
            except (psycopg.OperationalError, OSError, TimeoutError):
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RECONNECT_MAX_S)

    @asynccontextmanager
    async def _connection(self, timeout_s: float = _POOL_TIMEOUT_S) -> AsyncIterator[Connection]:
        """Lend a connection that was alive a moment ago; the pool's own check would wait a second after a dead one."""
        while True:
            connection = await self._pool.getconn(timeout_s)
            if _is_alive(connection):
                break
            await connection.close()
            await self._pool.putconn(connection)
        try:
            async with connection:
                yield connection
        finally:
            await self._pool.putconn(connection)


async def has_pgvector(database: Database) -> bool:
    """Whether the server has pgvector to create; the knowledge base needs it, nothing else does."""
    async with database.transaction() as session:
        return bool(await session.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'"))


def encode_json(value: Any) -> bytes:
    """Encode rows as JSON that jsonb accepts: NUL dropped, lone surrogates as ``?``.

    UUID, Decimal and datetime become text (ISO 8601), an Enum its value.

    Raises:
        ValueError: NaN or infinity. TypeError: Another type.
    """
    text = dumps(value, default=_encode_other, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if "\\u0000" in text:
        text = _NUL.sub(r"\1", text)
    return text.encode("utf-8", "replace")


def _encode_other(value: object) -> object:
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"cannot send {type(value).__name__} to the database")


def _bind(rows: Sequence[Mapping[str, Any]] | None, params: Mapping[str, Any]) -> dict[str, Any]:
    bound = {name: _bind_one(value) for name, value in params.items()}
    if rows is not None:
        bound["rows"] = Jsonb(list(rows), dumps=encode_json)
    return bound


def _bind_one(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str) and ("\0" in value or not value.isascii()):
        return value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_bind_one(member) for member in value]
    return Jsonb(value, dumps=encode_json) if isinstance(value, dict) else value


async def _execute(connection: Connection, sql: str, params: Mapping[str, Any]) -> list[DictRow]:
    with translated():
        return await _execute_raw(connection, sql, params)


async def _execute_raw(connection: Connection, sql: str, params: Mapping[str, Any]) -> list[DictRow]:
    try:
        cursor = await connection.execute(sql, params, prepare=True)
        return await cursor.fetchall() if cursor.description is not None else []
    except psycopg.errors.FeatureNotSupported:
        await connection.close()  # a migration changed the plan of a prepared statement: it would fail for ever
        raise


def _outcome(error: psycopg.Error, connection: Connection) -> Exception:
    if connection.broken:
        return CommitUnknownError(
            "the connection broke while the database was committing", hint="what was being done is read back first"
        )
    return translate_error(error)


async def _configure(connection: Connection) -> None:
    await connection.execute("SET TimeZone TO 'UTC'")


def _is_alive(connection: Connection) -> bool:
    """Whether the server has not closed it while it was idle. No round trip: a healthy idle one has said nothing."""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            for _ in range(3):
                if not selector.select(0):
                    break
                connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return connection.pgconn.status == ConnStatus.OK


async def _hear(connection: Connection) -> bool:
    heard = False
    async for _ in connection.notifies(timeout=_PING_AFTER_S, stop_after=1):
        heard = True
    if not heard:
        async with asyncio.timeout(_PING_TIMEOUT_S):
            await connection.execute("SELECT 1")
    return heard
