"""The wiring of the engine in one process.

Idea: the commands that run the engine take it from here, so there is one place where its parts are chosen. Invariant:
what was opened is closed in reverse, and litellm is imported only when a model needs it. Tested in
``tests/cli/test_run_worker.py``.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from zaia_cli.cli.readiness import require_ready
from zaia_cli.cli.runtime import Runtime
from zaia_cli.core.config import Config

if TYPE_CHECKING:
    from zaia_cli.engine.parts import EngineParts
    from zaia_cli.models.router import ModelRouter
    from zaia_cli.store.database import Database

__all__ = ["open_engine"]

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_engine(
    runtime: Runtime, config: Config | None = None, *, needs_tokens: bool = False
) -> AsyncIterator[EngineParts]:
    """Open channels and models, and give the engine's parts.

    Args:
        runtime: Database and workspace.
        config: In place of the runtime's configuration.
        needs_tokens: Whether every channel account's token must be here.

    Raises:
        ConfigError: The stored assistants or channels need what this process does not have.
    """
    from zaia_cli.channels.sending import open_channels
    from zaia_cli.engine.parts import EngineParts
    from zaia_cli.models.prices import load_prices
    from zaia_cli.models.router import ModelRouter

    chosen = config or runtime.config
    router = ModelRouter(chosen.models.endpoints, runtime.workspace.fixtures_dir / "scripts")
    async with open_channels(chosen.delivery) as channels:
        parts = EngineParts(
            db=runtime.database,
            config=chosen,
            channels=channels,
            model=router,
            prices=load_prices(chosen.prices),
            prompts_dir=runtime.workspace.prompts_dir,
            worker=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}",
            warm_up=partial(_warm_up, runtime.database, router),
        )
        await require_ready(parts, router, needs_tokens=needs_tokens)
        try:
            yield parts
        finally:
            await router.close()


async def _warm_up(db: Database, router: ModelRouter) -> None:
    """Import litellm beside the work when an assistant asks a real model; the first customer would wait for it."""
    from zaia_cli.models.scripted import PREFIX

    try:
        models = [row["model"] for row in await db.run("server.models")]
        if any(not model.startswith(PREFIX) for model in models):
            await router.warm_up()
    except Exception as error:
        _log.warning("models are not warmed up (%s); the first call will be slower", error)
