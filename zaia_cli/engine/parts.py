"""What the engine is made of in one process.

Idea: the composition root builds this once; everything on this floor takes it. Invariant: no module below reads the
configuration file; ``engine.accounts`` alone reads the environment, for tokens. Tested wherever the engine is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zaia_cli.agent.tools import BUILT_IN, Tool
from zaia_cli.core.chat import ChatModel
from zaia_cli.core.config import Config
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.core.prices import PriceTable
from zaia_cli.store.database import Database

__all__ = ["EngineParts"]


async def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class EngineParts:
    """Everything that a worker needs.

    ``worker`` is a name that operators recognise: host, process, random part. ``warm_up`` prepares the models; no turn
    is claimed before it has ended, so that no customer's deadline pays for it.
    """

    db: Database
    config: Config
    channels: Mapping[str, OutboundChannel]
    model: ChatModel
    prices: PriceTable
    prompts_dir: Path
    worker: str
    tools: Mapping[str, Tool] = field(default_factory=lambda: dict(BUILT_IN))
    warm_up: Callable[[], Awaitable[None]] = _nothing
