"""Migrations: the same ones for the embedded and for an external database.

Idea: Alembic is run from code, in one transaction under an advisory lock, so several processes may upgrade at once and
a failed upgrade leaves nothing behind. Asking for the state needs no Alembic (its import takes longer than the
question): the chain of revisions is read from the files. Invariant: no other code changes the schema, and no migration
creates an extension. Tested in ``tests/store/test_migrate.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import psycopg

from zaia_cli.core.errors import RefusedError
from zaia_cli.store.database_errors import connection_settings, describe_dsn, translate_error, translated

__all__ = ["MigrationStatus", "require_current", "status", "upgrade"]

_LOCK = 0x7A616961  # "zaia"
_REVISION = re.compile(r"^(revision|down_revision)\b[^=\n]*=\s*(?:[\"'](\w+)[\"']|None)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Where a database stands: ``behind`` or ``empty`` needs an upgrade, ``ahead`` a newer Zaia."""

    current: str | None
    head: str | None
    state: Literal["current", "behind", "ahead", "empty"]


def upgrade(dsn: str) -> None:
    """Bring a database to the newest revision. Safe to call twice and from several processes. Blocks.

    Raises:
        RefusedError: The database is newer than this Zaia.
        UnavailableError: It is away, or a table stayed locked for 30 s.
    """
    found = status(dsn)
    if found.state == "current":
        return
    if found.state == "ahead":
        raise _ahead(found)
    import sqlalchemy
    from alembic import command

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: _connect(dsn), poolclass=sqlalchemy.NullPool
    )
    try:
        with translated(), engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            connection.execute(sqlalchemy.text("SET LOCAL lock_timeout = '30s'"))
            command.upgrade(_alembic_config(connection), "head")
    except sqlalchemy.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate_error(error.orig) from error
        raise


def status(dsn: str) -> MigrationStatus:
    """Compare a database with the packaged migrations; reads one row, blocks for a round trip or two.

    Raises:
        ConfigError, UnavailableError: As for :meth:`Database.open`.
    """
    chain = _read_chain()
    head = chain[-1] if chain else None
    with translated(), _connect(dsn) as connection:
        row = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        if row is not None and row[0]:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            current: str | None = row[0] if row is not None else None
        else:
            current = None
    if current is None:
        return MigrationStatus(None, head, "empty")
    if current == head:
        return MigrationStatus(current, head, "current")
    return MigrationStatus(current, head, "behind" if current in chain else "ahead")


def require_current(dsn: str) -> None:
    """Refuse a database whose schema is not this Zaia's.

    Raises:
        RefusedError: Behind or empty (run `zaia db upgrade`), or ahead (upgrade Zaia).
    """
    found = status(dsn)
    if found.state == "ahead":
        raise _ahead(found)
    if found.state != "current":
        what = "has no tables yet" if found.state == "empty" else f"is at {found.current}, this zaia needs {found.head}"
        raise RefusedError(f"the database {what}", hint="run `zaia db upgrade`", code="not_migrated")


def _ahead(found: MigrationStatus) -> RefusedError:
    return RefusedError(
        f"the database is at {found.current}, newer than this zaia ({found.head})",
        hint="upgrade zaia: the database was migrated by a later version",
        code="database_ahead",
    )


def _connect(dsn: str) -> psycopg.Connection[Any]:
    describe_dsn(dsn)
    return psycopg.connect(dsn, **connection_settings(dsn))


@cache
def _read_chain() -> tuple[str, ...]:
    """Revisions from the first to the head."""
    after: dict[str | None, str] = {}
    for file in (files("zaia_cli.store") / "migrations" / "versions").iterdir():
        if file.name.endswith(".py"):
            found = {key: value or None for key, value in _REVISION.findall(file.read_text("utf-8"))}
            after[found["down_revision"]] = str(found["revision"])
    chain: list[str] = []
    while (chain[-1] if chain else None) in after:
        chain.append(after[chain[-1] if chain else None])
    if len(chain) != len(after):
        raise ValueError(f"the migrations are not one line: {sorted(after.values())}")
    return tuple(chain)


def _alembic_config(connection: Any) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("zaia_cli.store") / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
