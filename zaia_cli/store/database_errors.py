"""The one place where the driver's errors become ours.

Idea: what a later try may cure is an ``UnavailableError``, what only a migration cures is a ``RefusedError``; integrity
and data errors stay psycopg's, because only the statement's caller knows what they mean. Invariant: no message carries
a password or the driver's ``DETAIL`` (row values). Tested in ``tests/store/test_database.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from zaia_cli.core.errors import ConfigError, RefusedError, UnavailableError

__all__ = [
    "CommitUnknownError",
    "RetryableDatabaseError",
    "connection_settings",
    "describe_dsn",
    "translate_error",
    "translated",
]

_HINT = "check that the database runs and is reachable: `zaia doctor`"
_SETTINGS = {
    "application_name": "zaia",
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)


class RetryableDatabaseError(UnavailableError):
    """The transaction was rolled back for the sake of another one; run it again from its start."""

    code = "database_busy"


class CommitUnknownError(UnavailableError):
    """The connection broke while a commit was under way: it happened or not. Read back before doing it again."""

    code = "commit_unknown"


def translate_error(error: psycopg.Error) -> Exception:
    """Return what to raise instead of ``error``; ``error`` itself where only the caller can judge."""
    text = error.diag.message_primary or str(error)
    if isinstance(error, _AGAIN) or "cached plan must not change" in text:
        return RetryableDatabaseError(f"the database rolled a transaction back: {text}", hint="try again")
    if isinstance(error, errors.UndefinedTable):
        return RefusedError(f"the database is not migrated: {text}", hint="run `zaia db upgrade`", code="not_migrated")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        hint = "the database is read-only (a standby?): point ZAIA_DATABASE_URL at the primary"
        return UnavailableError(text, hint=hint, code="database_unavailable")
    if isinstance(error, errors.DiskFull):
        hint = "free space on the database's disk; nothing that was confirmed is lost"
        return UnavailableError(text, hint=hint, code="database_unavailable")
    if isinstance(error, psycopg.OperationalError):
        return UnavailableError(f"the database is not available: {text}", hint=_HINT, code="database_unavailable")
    return error


@contextmanager
def translated() -> Iterator[None]:
    """Translate every psycopg error of the block."""
    try:
        yield
    except psycopg.Error as error:
        mine = translate_error(error)
        if mine is error:
            raise
        raise mine from error


def connection_settings(dsn: str) -> dict[str, Any]:
    """Return libpq settings to pass beside ``dsn``: a name, 5 s to connect, a dead peer noticed within 60 s.

    What ``dsn`` sets itself is left out.
    """
    given = conninfo_to_dict(dsn)
    return {key: value for key, value in _SETTINGS.items() if key not in given}


def describe_dsn(dsn: str) -> str:
    """Name a database without its password: ``zaia@db.example:5432/zaia``.

    Raises:
        ConfigError: It is not a connection string. The text is not repeated: it may be mostly password.
    """
    wrong = ConfigError(
        "the database URL cannot be read",
        hint="postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password percent-encoded",
    )
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        raise wrong from None
    port = str(parts.get("port") or "5432")
    if not all(number.isdigit() for number in port.split(",")) or "@" in f"{parts.get('host')}{parts.get('dbname')}":
        raise wrong
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{parts.get('user') or ''}@{host}:{port}/{parts.get('dbname') or ''}"
