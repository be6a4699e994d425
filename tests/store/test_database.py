"""The psycopg door on a real server: statements, JSON, transactions, translated errors, wake-ups, lost connections."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from zaia_cli.core.errors import ConfigError, RefusedError, UnavailableError, ZaiaError
from zaia_cli.store import database as door
from zaia_cli.store.database import (
    CommitUnknownError,
    Database,
    RetryableDatabaseError,
    Session,
    encode_json,
    has_pgvector,
)
from zaia_cli.store.database_errors import translate_error
from zaia_cli.store.embedded import embedded_server
from zaia_cli.store.migrate import status, upgrade
from zaia_cli.store.statements import parse_statements, statement, statements

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
TABLE: LiteralString = "CREATE TABLE door (id uuid PRIMARY KEY, at timestamptz, cost numeric, words text)"
SQL = """
-- name: add
-- Insert what is new.
INSERT INTO door (id, at, cost, words)
SELECT r.id, r.at, r.cost, r.words
FROM jsonb_to_recordset(%(rows)s) AS r(id uuid, at timestamptz, cost numeric, words text)
ON CONFLICT DO NOTHING RETURNING id, at, cost, words

-- name: count
SELECT count(*) AS n FROM door

-- name: find
SELECT words FROM door WHERE words = %(words)s OR id = ANY(%(ids)s)

-- name: missing_table
SELECT * FROM no_such_table

-- name: everything
SELECT * FROM door
"""


class Colour(Enum):
    RED = "red"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse_statements("door", SQL)
    monkeypatch.setattr(door, "statement", found.__getitem__)


@pytest.fixture
async def table(empty_dsn: str, named: None) -> AsyncIterator[Database]:
    async with await Database.open(empty_dsn) as database:
        async with database.transaction() as session:
            await session.execute(TABLE)
        yield database


def row(words: str = "oi") -> dict[str, object]:
    return {"id": uuid4(), "at": datetime(2026, 1, 2, tzinfo=UTC), "cost": Decimal("0.000123"), "words": words}


async def count(database: Database) -> int:
    found = await database.run("door.count")
    return int(found[0]["n"])


def kill_others(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )


# --- statements ------------------------------------------------------------------------------------------------------


def test_packaged_statements_load_and_are_found_by_file_and_name() -> None:
    for name, text in statements().items():
        assert statement(name) == text


def test_unknown_statement_lists_what_there_is() -> None:
    with pytest.raises(LookupError, match=r"nowhere\.at_all"):
        statement("nowhere.at_all")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "twice"),
        ("-- name: a\n-- only words\n", "empty"),
        ("SELECT 1\n-- name: a\nSELECT 2", "before the first"),
    ],
)
def test_malformed_statement_files_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_statements("file", text)


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_json_takes_every_type_that_rows_hold() -> None:
    key = UUID(int=7)
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    value = {"id": key, "at": at, "cost": Decimal("1.10"), "colour": Colour.RED, "words": "ção", "none": None}
    expected = {"id": str(key), "at": at.isoformat(), "cost": "1.10", "colour": "red", "words": "ção", "none": None}
    assert json.loads(encode_json([value])) == [expected]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\0b", "ab"),
        ("\0\0", ""),
        ("\\\0", "\\"),
        ("\\u0000", "\\u0000"),
        ("\\\\u0000\0", "\\\\u0000"),
        ("half \ud83d", "half ?"),
    ],
)
async def test_text_that_postgres_refuses_is_cleaned_and_nothing_else(table: Database, given: str, kept: str) -> None:
    assert json.loads(encode_json({"words": given})) == {"words": kept}
    [stored] = await table.run("door.add", [row(given)])
    assert stored["words"] == kept
    assert await table.run("door.find", words=given, ids=[]) == [{"words": kept}]


@pytest.mark.parametrize(("value", "error"), [(float("nan"), ValueError), (object(), TypeError)])
def test_json_refuses_what_has_no_honest_form(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_json({"value": value})


# --- running ---------------------------------------------------------------------------------------------------------


async def test_rows_go_in_as_one_array_and_come_back_typed(table: Database) -> None:
    rows = [row("um"), row("dois")]
    assert await table.run("door.add", rows) == rows
    assert await table.run("door.add", rows) == []
    assert await table.run("door.add", []) == []
    assert await table.run("door.find", words="", ids=[rows[1]["id"]]) == [{"words": "dois"}]


async def test_times_come_back_in_utc(table: Database) -> None:
    async with table.transaction() as session:
        [found] = await session.execute("SELECT now() AS at, current_setting('application_name') AS name")
    assert found["at"].utcoffset() == UTC.utcoffset(None)
    assert found["name"] == "zaia"


async def test_statements_are_prepared_at_first_use(table: Database) -> None:
    async with table.transaction() as session:
        await session.run("door.add", [row()])
        prepared = await session.execute("SELECT statement FROM pg_prepared_statements")
    assert any("jsonb_to_recordset" in found["statement"] for found in prepared)


async def test_transaction_commits_at_the_end_and_rolls_back_on_an_error(table: Database) -> None:
    async with table.transaction() as session:
        await session.run("door.add", [row()])
    assert await count(table) == 1

    async def fail() -> None:
        async with table.transaction() as session:
            await session.run("door.add", [row()])
            raise ZaiaError("no")

    with pytest.raises(ZaiaError, match="no"):
        await fail()
    assert await count(table) == 1


async def test_swallowed_statement_error_cannot_pass_for_a_commit(table: Database) -> None:
    same = row()

    async def swallow() -> None:
        async with table.transaction() as session:
            await session.run("door.add", [same])
            with pytest.raises(errors.UniqueViolation):
                await session.execute("INSERT INTO door (id) VALUES (%(id)s)", {"id": same["id"]})

    with pytest.raises(errors.InFailedSqlTransaction):
        await swallow()
    assert await count(table) == 0


async def test_changed_table_does_not_break_prepared_statements_for_ever(empty_dsn: str, named: None) -> None:
    async with await Database.open(empty_dsn, pool_size=1) as database:
        async with database.transaction() as session:
            await session.execute("CREATE TABLE door (id int)")
        await database.run("door.everything")
        with psycopg.connect(empty_dsn) as connection:
            connection.execute("ALTER TABLE door ADD COLUMN words text")
        with pytest.raises(RetryableDatabaseError):
            await database.run("door.everything")
        assert await database.run("door.everything") == []


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "mine", "code"),
    [
        (errors.DeadlockDetected("x"), RetryableDatabaseError, "database_busy"),
        (errors.SerializationFailure("x"), RetryableDatabaseError, "database_busy"),
        (errors.LockNotAvailable("x"), RetryableDatabaseError, "database_busy"),
        (errors.DiskFull("x"), UnavailableError, "database_unavailable"),
        (errors.ReadOnlySqlTransaction("x"), UnavailableError, "database_unavailable"),
        (errors.AdminShutdown("x"), UnavailableError, "database_unavailable"),
        (errors.TooManyConnections("x"), UnavailableError, "database_unavailable"),
        (psycopg.OperationalError("the connection is closed"), UnavailableError, "database_unavailable"),
        (errors.UndefinedTable("x"), RefusedError, "not_migrated"),
    ],
)
def test_driver_errors_are_translated(error: psycopg.Error, mine: type[ZaiaError], code: str) -> None:
    found = translate_error(error)
    assert type(found) is mine
    assert isinstance(found, ZaiaError)
    assert (found.code, bool(found.hint)) == (code, True)


@pytest.mark.parametrize("error", [errors.UniqueViolation("x"), errors.NumericValueOutOfRange("x")])
def test_integrity_and_data_errors_stay_the_drivers(error: psycopg.Error) -> None:
    assert translate_error(error) is error


async def test_missing_table_points_at_the_upgrade(table: Database) -> None:
    with pytest.raises(RefusedError, match="not migrated") as caught:
        await table.run("door.missing_table")
    assert caught.value.hint == "run `zaia db upgrade`"


async def test_deadlock_is_retried_until_both_are_through(table: Database) -> None:
    first, second = row("first"), row("second")
    await table.run("door.add", [first, second])
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    def lock_in_order(one: object, two: object) -> Callable[[Session], asyncio.Future[None]]:
        is_first_try = True

        async def work(session: Session) -> None:
            nonlocal is_first_try, tries
            tries += 1
            await session.execute("UPDATE door SET words = 'x' WHERE id = %(id)s", {"id": one})
            if is_first_try:
                is_first_try = False
                await both_hold_one.wait()
            await session.execute("UPDATE door SET words = 'x' WHERE id = %(id)s", {"id": two})

        return work  # type: ignore[return-value]

    await asyncio.gather(
        table.with_retries(lock_in_order(first["id"], second["id"])),
        table.with_retries(lock_in_order(second["id"], first["id"])),
    )
    assert tries == 3


async def test_retries_end(table: Database) -> None:
    tries = 0

    async def work(_: Session) -> None:
        nonlocal tries
        tries += 1
        raise RetryableDatabaseError("again")

    with pytest.raises(RetryableDatabaseError):
        await table.with_retries(work, attempts=2)
    assert tries == 2


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://zaia:s3cret@127.0.0.1:1/zaia",
        "postgresql://zaia:s3cret@/zaia?host=/nonexistent",
        "host=127.0.0.1 port=1 user=zaia password=s3cret dbname=zaia",
    ],
)
async def test_unreachable_database_is_exit_5_at_once_without_the_password(dsn: str) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(UnavailableError) as caught:
            await Database.open(dsn)
    assert caught.value.exit_code == 5
    assert caught.value.hint
    assert "s3cret" not in caught.value.message
    assert "zaia@" in caught.value.message


async def test_server_that_never_answers_is_given_up_after_about_5_s() -> None:
    held = asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(8):
            with pytest.raises(UnavailableError):
                await Database.open(f"postgresql://zaia@127.0.0.1:{port}/zaia")
        held.set()


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres//zaia:s3cret@host/zaia",
        "postgresql://zaia:s3/cret@host/zaia",
        "postgresql://zaia:12/s3cret@host/zaia",
        "postgresql://zaia:s3@cret@host/zaia",
        "s3cret",
    ],
)
async def test_unreadable_url_is_exit_2_and_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await Database.open(dsn)
    assert "cret" not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.__cause__ is None


async def test_server_before_15_is_refused(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 140012)
    with pytest.raises(RefusedError, match="PostgreSQL 14") as caught:
        await Database.open(empty_dsn)
    assert caught.value.exit_code == 6


# --- lost connections ------------------------------------------------------------------------------------------------


async def test_connections_closed_while_idle_are_replaced_unnoticed(table: Database, empty_dsn: str) -> None:
    all_in = asyncio.Barrier(4)

    async def use() -> None:
        async with table.transaction():
            await all_in.wait()

    await asyncio.gather(*(use() for _ in range(4)))
    await asyncio.to_thread(kill_others, empty_dsn)
    async with asyncio.timeout(1):
        assert await count(table) == 0


async def test_connection_lost_inside_a_transaction_commits_nothing(table: Database, empty_dsn: str) -> None:
    async def lose() -> None:
        async with table.transaction() as session:
            await session.run("door.add", [row()])
            await asyncio.to_thread(kill_others, empty_dsn)
            await session.run("door.add", [row()])

    with pytest.raises(UnavailableError) as caught:
        await lose()
    assert not isinstance(caught.value, CommitUnknownError)
    assert await count(table) == 0


@asynccontextmanager
async def cutting_proxy(socket_folder: str) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A TCP door to the server that, once told, passes requests on but cuts the line instead of passing answers."""
    cut = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(f"{socket_folder}/.s.PGSQL.5432")

        async def requests() -> None:
            while data := await reader.read(65536):
                up_writer.write(data)
            up_writer.close()

        task = asyncio.create_task(requests())
        while data := await up_reader.read(65536):
            if cut.is_set():
                break
            writer.write(data)
        writer.transport.abort()
        up_writer.close()
        task.cancel()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], cut


@pytest.mark.parametrize("is_transaction", [True, False])
async def test_connection_lost_during_a_commit_is_told_apart_and_may_have_committed(
    table: Database, is_transaction: bool
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(table.dsn)
    if not str(parts.get("host", "")).startswith("/"):
        pytest.skip("needs a server on a local socket")
    async with cutting_proxy(str(parts["host"])) as (port, cut):
        dsn = f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        async with await Database.open(dsn, pool_size=1) as far:
            async with far.transaction() as session:
                await session.run("door.add", [row()])
            await far.run("door.add", [row()])

            async def commit() -> None:
                if not is_transaction:
                    cut.set()
                    await far.run("door.add", [row()])
                    return
                async with far.transaction() as session:
                    await session.run("door.add", [row()])
                    cut.set()

            with pytest.raises(CommitUnknownError) as caught:
                await commit()
            assert caught.value.code == "commit_unknown"
            cut.clear()
    assert await count(table) == 3


# --- wake-ups --------------------------------------------------------------------------------------------------------


async def test_listener_hears_at_connection_at_notify_and_after_a_lost_connection(
    table: Database, empty_dsn: str
) -> None:
    async with aclosing(table.listen()) as heard, asyncio.timeout(20):
        await anext(heard)
        await table.notify()
        await anext(heard)
        await asyncio.to_thread(kill_others, empty_dsn)
        await anext(heard)
        await table.notify()
        await anext(heard)


async def test_quiet_listener_pings_and_stays(table: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_PING_AFTER_S", 0.01)
    pinged = asyncio.Event()
    hear = door._hear

    async def spy(connection: door.Connection) -> bool:
        found = await hear(connection)
        pinged.set()
        return found

    monkeypatch.setattr(door, "_hear", spy)
    async with aclosing(table.listen()) as heard, asyncio.timeout(20):
        await anext(heard)
        waiting = asyncio.ensure_future(anext(heard))
        await pinged.wait()
        await table.notify()
        await waiting


async def test_notify_is_best_effort(table: Database) -> None:
    await table.close()
    await table.notify()
    with pytest.raises(UnavailableError):
        await table.run("door.count")


# --- other servers ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif("ZAIA_TEST_DATABASE_URL" in os.environ, reason="asks the embedded server")
@pytest.mark.skipif("ZAIA_POSTGRES_BIN" in os.environ, reason="asks the wheel's binaries")
async def test_embedded_server_has_pgvector(db: Database) -> None:
    assert await has_pgvector(db) is True


@pytest.mark.skipif(not SYSTEM_15.exists(), reason="no PostgreSQL 15 of the system")
async def test_everything_but_pgvector_works_on_postgres_15(
    reachable_path: Path, monkeypatch: pytest.MonkeyPatch, named: None
) -> None:
    monkeypatch.setenv("ZAIA_POSTGRES_BIN", str(SYSTEM_15))
    with embedded_server(reachable_path) as dsn:
        await asyncio.to_thread(upgrade, dsn)
        assert status(dsn).state == "current"
        async with await Database.open(dsn) as database:
            assert await has_pgvector(database) is False
            async with database.transaction() as session:
                await session.execute(TABLE)
            rows = [row()]
            assert await database.run("door.add", rows) == rows
            async with aclosing(database.listen()) as heard, asyncio.timeout(20):
                await anext(heard)
                await database.notify()
                await anext(heard)
