"""``zaia db``: migrations, the address of the database, and starting over.

Idea: the schema is changed by migrations alone; a reset drops everything and migrates again. Invariant: nothing is
deleted without a person's yes or ``--yes``. Tested in ``tests/cli/test_db.py``.
"""

from __future__ import annotations

import sys
import threading
from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.runtime import load_setup, open_dsn
from zaia_cli.core.errors import RefusedError

__all__ = ["app", "reset", "status", "upgrade", "url"]

app = group("Upgrade, inspect, locate or reset the database.")


@app.command()
@command(
    examples=("zaia db upgrade", "zaia db upgrade --database-url postgresql://zaia@db.example/zaia"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
def upgrade(options: Options) -> None:
    """Bring the database to the schema of this version.

    Safe to run twice and from several machines at once. The embedded database never needs it: every command
    upgrades it.
    """
    from zaia_cli.store import migrate

    with open_dsn(load_setup(options)) as dsn:
        before = migrate.status(dsn)
        migrate.upgrade(dsn)
        after = migrate.status(dsn)
    options.output.json({"before": before.current, "after": after.current, "state": after.state})
    options.output.line(f"{before.current or 'empty'} -> {after.current}")


@app.command()
@command(examples=("zaia db status", "zaia db status --json"), exit_codes=(0, 1, 2, 4, 5))
def status(options: Options) -> None:
    """Tell which revision the database has and which one this version needs."""
    from zaia_cli.store import migrate
    from zaia_cli.store.database_errors import describe_dsn

    setup = load_setup(options)
    with open_dsn(setup) as dsn:
        found, where = migrate.status(dsn), describe_dsn(dsn)
    kind = "embedded" if setup.external_dsn is None else "external"
    told = {"kind": kind, "where": where, "state": found.state, "current": found.current, "head": found.head}
    options.output.json(told)
    options.output.table(tuple(told), [tuple(told.values())])


@app.command()
@command(examples=('psql "$(zaia db url)"', "zaia db url --hold"), exit_codes=(0, 1, 2, 4, 5))
def url(
    options: Options,
    hold: Annotated[bool, typer.Option("--hold", help="Keep the embedded server running until Ctrl-C.")] = False,
) -> None:
    """Print the database's URL for psql, password included.

    The embedded server runs only while some zaia command runs: keep one open, such as a worker or this one with --hold.
    """
    setup = load_setup(options)
    with open_dsn(setup) as dsn:
        options.output.json({"url": dsn})
        options.output.line(dsn)
        if setup.external_dsn is None and not hold:
            options.output.note("the embedded server runs while a zaia command does; to keep it up: zaia db url --hold")
        if hold:
            options.output.note("holding; stop with Ctrl-C")
            _wait_for_interrupt()


@app.command()
@command(examples=("zaia db reset", "zaia db reset --yes"), exit_codes=(0, 1, 2, 4, 5, 6))
async def reset(
    options: Options, yes: Annotated[bool, typer.Option("--yes", help="Do not ask; delete everything.")] = False
) -> None:
    """Delete everything in the database and migrate again.

    Shows what would be deleted and asks on a terminal; anywhere else it needs --yes.
    """
    from zaia_cli.store import migrate
    from zaia_cli.store.database import Database
    from zaia_cli.store.database_errors import describe_dsn

    with open_dsn(load_setup(options)) as dsn:
        where = describe_dsn(dsn)
        async with await Database.open(dsn, pool_size=1) as database:
            sizes = await _sizes(database) if migrate.status(dsn).state == "current" else {}
            _confirm(options, where, sizes, yes)
            async with database.transaction() as session:
                for step in ("admin.limit_lock_wait", "admin.drop_schema", "admin.create_schema", "admin.open_schema"):
                    await session.run(step)
        migrate.upgrade(dsn)
    options.output.json({"where": where, "deleted": sizes})
    options.output.line(f"{where} is empty")


async def _sizes(database: Any) -> dict[str, int]:
    return dict((await database.run("admin.sizes"))[0])


def _confirm(options: Options, where: str, sizes: dict[str, int], yes: bool) -> None:
    what = ", ".join(f"{count} {name}" for name, count in sizes.items()) or "every table"
    options.output.note(f"this deletes {what} from {where}")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError(
            f"nothing was deleted from {where}: nobody can be asked here", hint="to delete: zaia db reset --yes"
        )
    if not typer.confirm("delete?", err=True):
        raise RefusedError(f"nothing was deleted from {where}")


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
