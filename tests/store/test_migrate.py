"""Migrations on real databases: states, refusals, two processes at once."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from zaia_cli.core.errors import RefusedError
from zaia_cli.store import migrate
from zaia_cli.store.migrate import require_current, status, upgrade


def stamp(dsn: str, revision: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])


def test_empty_database_is_refused_with_the_command_that_helps(empty_dsn: str) -> None:
    assert status(empty_dsn).state == "empty"
    with pytest.raises(RefusedError, match="no tables yet") as caught:
        require_current(empty_dsn)
    assert caught.value.exit_code == 6
    assert caught.value.hint == "run `zaia db upgrade`"


def test_upgrade_makes_it_current_and_a_second_one_changes_nothing(empty_dsn: str) -> None:
    upgrade(empty_dsn)
    found = status(empty_dsn)
    assert found.state == "current"
    assert found.current == found.head
    upgrade(empty_dsn)
    require_current(empty_dsn)


def test_database_of_a_later_version_is_refused(empty_dsn: str) -> None:
    upgrade(empty_dsn)
    stamp(empty_dsn, "from_the_future")
    assert status(empty_dsn).state == "ahead"
    for refuse in (require_current, upgrade):
        with pytest.raises(RefusedError, match="newer than this zaia") as caught:
            refuse(empty_dsn)
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("upgrade zaia")


def test_database_of_an_earlier_version_is_behind(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('first')")
    monkeypatch.setattr(migrate, "_read_chain", lambda: ("first", "second"))
    assert status(empty_dsn).state == "behind"
    with pytest.raises(RefusedError, match="at first, this zaia needs second"):
        require_current(empty_dsn)


async def test_upgrades_at_once_leave_one_migrated_database(empty_dsn: str) -> None:
    await asyncio.gather(*(asyncio.to_thread(upgrade, empty_dsn) for _ in range(3)))
    assert status(empty_dsn).state == "current"


def test_no_migration_creates_an_extension(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT extname FROM pg_extension").fetchall() == [("plpgsql",)]


def test_chain_of_revisions_ends_where_alembic_ends() -> None:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(migrate._alembic_config(None))
    assert migrate._read_chain()[-1] == script.get_current_head()
