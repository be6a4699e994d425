"""One real Postgres for the whole test run.

Idea: the run's embedded server lives in a folder made by the controlling process and is shared by its xdist workers;
``ZAIA_TEST_DATABASE_URL`` (a superuser's URL) takes its place. A migrated template is made once, each worker clones its
own database from it, and each test that asks for ``dsn`` finds that database empty. Invariant: nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from zaia_cli.store.database import Database
from zaia_cli.store.embedded import embedded_server
from zaia_cli.store.migrate import upgrade

_STATE = "ZAIA_TEST_STATE"
_LOCK = 7_205_017
_CLEAN = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT format('%I', tablename) FROM pg_tables
                WHERE schemaname = 'public' AND tablename <> 'alembic_version'
    LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
END $$
"""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="zaia-tests-", dir="/tmp")
        Path(folder).chmod(0o711)
        os.environ[_STATE] = folder


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and _STATE in os.environ:
        shutil.rmtree(os.environ.pop(_STATE), ignore_errors=True)


def _with_database(dsn: str, name: str) -> str:
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()


def _run_name() -> str:
    return Path(os.environ[_STATE]).name.replace("-", "_").lower()


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """The server's maintenance database; superuser."""
    given = os.environ.get("ZAIA_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with embedded_server(Path(os.environ[_STATE])) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def worker_dsn(server_dsn: str) -> Iterator[str]:
    """This worker's migrated database, cloned from the run's template."""
    template, name = f"{_run_name()}_template", f"{_run_name()}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        if not server.execute("SELECT FROM pg_database WHERE datname = %s", [template]).fetchall():
            partial = f"{template}_partial"
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(partial)))
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(partial)))
            upgrade(_with_database(server_dsn, partial))
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            server.execute(rename.format(sql.Identifier(partial), sql.Identifier(template)))
        clone = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        server.execute(clone.format(sql.Identifier(name), sql.Identifier(template)))
        server.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
        yield _with_database(server_dsn, name)
        for left in (name, template):
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(left)))


@pytest.fixture(scope="session")
def _cleaner(worker_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(worker_dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # any order of tables, no triggers
        connection.execute("SET lock_timeout = '5s'")
        yield connection


@pytest.fixture
def dsn(worker_dsn: str, _cleaner: psycopg.Connection) -> str:
    """A migrated database without rows."""
    _cleaner.execute(_CLEAN)
    return worker_dsn


@pytest_asyncio.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    """The same database, opened."""
    async with await Database.open(dsn) as database:
        yield database


@pytest.fixture
def empty_dsn(server_dsn: str) -> Iterator[str]:
    """A database of its own without any table; costs about 50 ms."""
    name = f"{_run_name()}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_empty"
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield _with_database(server_dsn, name)
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def reachable_path() -> Iterator[Path]:
    """A new folder, with a space, that every account can pass: as root, pytest's own is closed to the server's."""
    folder = Path(tempfile.mkdtemp(prefix="zaia test ", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
