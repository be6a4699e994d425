"""The composition root: from options to a workspace, a configuration and a database that is ready.

Idea: every command that works opens one ``Runtime`` and finds everything in it. Invariant: the embedded database is
upgraded here, an external one never is: when it is behind or ahead the command is refused. Tested in
``tests/cli/test_runtime.py``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zaia_cli.cli.command import Options
from zaia_cli.cli.output import Output
from zaia_cli.cli.workspace import Workspace, find_workspace
from zaia_cli.core.config import Config
from zaia_cli.core.loading import load_config

if TYPE_CHECKING:
    from zaia_cli.store.database import Database

__all__ = ["Runtime", "Setup", "load_setup", "open_dsn", "open_runtime"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known before a database is touched. ``external_dsn`` is None for the embedded server."""

    workspace: Workspace
    config: Config
    external_dsn: str | None


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a command works with; valid inside ``open_runtime``."""

    workspace: Workspace
    config: Config
    database: Database
    dsn: str
    output: Output


def load_setup(options: Options) -> Setup:
    """Find the workspace and read its configuration.

    Raises:
        NotFoundError: ``--workspace`` names no workspace.
        ConfigError: The configuration cannot be used.
    """
    workspace = find_workspace(options.workspace, Path.cwd())
    config = load_config(workspace.config_file, os.environ)
    return Setup(workspace, config, options.database_url or config.database.url or None)


@contextmanager
def open_dsn(setup: Setup) -> Iterator[str]:
    """Give the database's URL; start the embedded server when no external one is configured.

    Raises:
        UnavailableError: The embedded server does not start.
    """
    if setup.external_dsn is not None:
        yield setup.external_dsn
        return
    from zaia_cli.store.embedded import embedded_server

    with embedded_server(setup.workspace.state_dir) as dsn:
        yield dsn


@asynccontextmanager
async def open_runtime(options: Options, *, pool_size: int | None = None) -> AsyncIterator[Runtime]:
    """Open what a command needs, in order, and close it in reverse.

    Args:
        options: The options of every command.
        pool_size: Connections of the pool; the configuration's by default.

    Raises:
        ConfigError: Configuration cannot be used.
        UnavailableError: No database answers.
        RefusedError: An external database is behind or ahead of this version of Zaia.
    """
    from zaia_cli.store import migrate
    from zaia_cli.store.database import Database

    setup = load_setup(options)
    with open_dsn(setup) as dsn:
        if setup.external_dsn is None:
            migrate.upgrade(dsn)
        else:
            migrate.require_current(dsn)
        database = await Database.open(dsn, pool_size=pool_size or setup.config.database.pool_size)
        async with database:
            yield Runtime(setup.workspace, setup.config, database, dsn, options.output)
