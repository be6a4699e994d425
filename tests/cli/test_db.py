"""``zaia db``: upgrade, status, url, reset."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from zaia_cli.store import migrate

ROOT = Path(__file__).parents[2]


def leave_a_table(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE leftover (id int)")


def has_table(dsn: str, name: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    return bool(row and row[0])


def test_upgrade_brings_an_empty_database_to_the_head_and_twice_is_once(
    zaia: Any, workspace: Path, empty_dsn: str
) -> None:
    arguments = ("db", "upgrade", "--workspace", workspace, "--json", "--database-url", empty_dsn)
    first, second = json.loads(zaia(*arguments).stdout), json.loads(zaia(*arguments).stdout)
    assert (first["before"], first["state"]) == (None, "current")
    assert (second["before"], second["after"]) == (first["after"], first["after"])
    assert has_table(empty_dsn, "work_items")


def test_status_tells_where_the_database_stands(zaia: Any, workspace: Path, empty_dsn: str) -> None:
    arguments = ("db", "status", "--workspace", workspace, "--json", "--database-url", empty_dsn)
    empty = json.loads(zaia(*arguments).stdout)
    assert (empty["kind"], empty["state"], empty["current"]) == ("external", "empty", None)
    migrate.upgrade(empty_dsn)
    current = json.loads(zaia(*arguments).stdout)
    assert current["state"] == "current"
    assert current["current"] == current["head"]


def test_url_is_printed_as_it_was_given(zaia: Any, workspace: Path, dsn: str) -> None:
    done = zaia("db", "url", "--workspace", workspace, "--database-url", dsn)
    assert done.stdout == f"{dsn}\n"


def test_the_embedded_url_holds_until_interrupted(workspace: Path) -> None:
    command = [sys.executable, "-m", "zaia_cli", "db", "url", "--hold", "--workspace", str(workspace)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        dsn = process.stdout.readline().strip()
        assert "holding" in process.stderr.readline()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=40) == 0


def test_reset_without_a_terminal_needs_yes(zaia: Any, workspace: Path, empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn)
    done = zaia("db", "reset", "--workspace", workspace, "--json", "--database-url", empty_dsn)
    assert done.exit_code == 6
    assert json.loads(done.stdout)["error"]["hint"] == "to delete: zaia db reset --yes"
    assert "this deletes 0 organizations, 0 conversations, 0 messages" in done.stderr
    assert migrate.status(empty_dsn).state == "current"


def test_reset_with_yes_deletes_and_migrates_again(zaia: Any, workspace: Path, empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn)
    leave_a_table(empty_dsn)
    done = zaia("db", "reset", "--yes", "--workspace", workspace, "--json", "--database-url", empty_dsn)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["deleted"] == {"organizations": 0, "conversations": 0, "messages": 0}
    assert not has_table(empty_dsn, "leftover")
    assert migrate.status(empty_dsn).state == "current"
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("SELECT has_schema_privilege('pg_monitor', 'public', 'usage')").fetchone() == (True,)


@pytest.mark.parametrize(("said", "code", "is_kept"), [("n\n", 6, True), ("y\n", 0, False)])
def test_reset_asks_on_a_terminal(workspace: Path, empty_dsn: str, said: str, code: int, is_kept: bool) -> None:
    leave_a_table(empty_dsn)
    command = [sys.executable, "-m", "zaia_cli", "db", "reset", "--workspace", str(workspace)]
    ours, theirs = pty.openpty()
    os.write(ours, said.encode())
    done = subprocess.run(
        [*command, "--database-url", empty_dsn],
        cwd=ROOT,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
        timeout=50,
    )
    os.close(theirs)
    os.close(ours)
    assert done.returncode == code
    assert has_table(empty_dsn, "leftover") is is_kept
