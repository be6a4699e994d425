"""The composition root: which database is used and what happens to its schema."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from zaia_cli.cli.command import Options
from zaia_cli.cli.runtime import load_setup, open_runtime
from zaia_cli.core.errors import ConfigError, RefusedError
from zaia_cli.store import migrate


async def test_the_embedded_database_is_upgraded_on_first_use(workspace: Path) -> None:
    async with open_runtime(Options(workspace=workspace)) as runtime:
        assert migrate.status(runtime.dsn).state == "current"
        assert (await runtime.database.run("admin.sizes"))[0]["messages"] == 0
        assert runtime.workspace.root == workspace
    assert (workspace / ".zaia").is_dir()


async def test_an_external_database_behind_is_refused_and_left_alone(workspace: Path, empty_dsn: str) -> None:
    with pytest.raises(RefusedError) as caught:
        async with open_runtime(Options(workspace=workspace, database_url=empty_dsn)):
            pass
    assert caught.value.exit_code == 6
    assert "zaia db upgrade" in (caught.value.hint or "")
    assert migrate.status(empty_dsn).state == "empty"


async def test_an_external_database_ahead_is_refused(workspace: Path, empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'later'")
    with pytest.raises(RefusedError, match="newer"):
        async with open_runtime(Options(workspace=workspace, database_url=empty_dsn)):
            pass


def test_the_option_wins_over_environment_and_file(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_setup(Options(workspace=workspace)).external_dsn is None
    (workspace / "zaia.toml").write_text('[database]\nurl = "postgresql://file/x"\n', encoding="utf-8")
    assert load_setup(Options(workspace=workspace)).external_dsn == "postgresql://file/x"
    monkeypatch.setenv("ZAIA_DATABASE_URL", "postgresql://variable/x")
    assert load_setup(Options(workspace=workspace)).external_dsn == "postgresql://variable/x"
    given = Options(workspace=workspace, database_url="postgresql://option/x")
    assert load_setup(given).external_dsn == "postgresql://option/x"


def test_a_wrong_configuration_stops_before_any_database(workspace: Path) -> None:
    (workspace / "zaia.toml").write_text("[other]\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        load_setup(Options(workspace=workspace))
    assert not (workspace / ".zaia").exists()


def test_the_workspace_variable_is_the_option(zaia: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAIA_WORKSPACE", str(workspace))
    done = zaia("db", "status", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["kind"] == "embedded"
