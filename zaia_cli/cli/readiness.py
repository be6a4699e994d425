"""What a worker must have before it takes the first customer: keys, tokens, prompts.

Idea: a process that cannot finish its turns must not claim them, because each would end with a person. Invariant:
nothing is claimed when this refuses, and everything that is missing is named at once. Tested in
``tests/cli/test_run_worker.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zaia_cli.core.errors import ConfigError, ZaiaError

if TYPE_CHECKING:
    from zaia_cli.engine.parts import EngineParts
    from zaia_cli.models.router import ModelRouter

__all__ = ["require_ready"]


async def require_ready(parts: EngineParts, router: ModelRouter, *, needs_tokens: bool) -> None:
    """Refuse to start without what the stored assistants and channels need.

    Args:
        parts: The engine.
        router: Its models.
        needs_tokens: Also every channel account's token.

    Raises:
        ConfigError: A model's key, a prompt or a token is missing; the message names all of them.
    """
    assistants = await parts.db.run("server.assistants")
    accounts = await parts.db.run("server.accounts") if needs_tokens else []
    problems = [*_models(router, assistants), *_prompts(parts, assistants), *_tokens(accounts)]
    if problems:
        hint = "set them in the environment of this process; zaia doctor checks again"
        raise ConfigError("this worker cannot serve: " + "; ".join(dict.fromkeys(problems)), hint=hint)


def _models(router: ModelRouter, assistants: list[dict[str, Any]]) -> Iterator[str]:
    for row in assistants:
        for model in (row["model"], *row["fallback_models"]):
            try:
                router.check(model)
            except ZaiaError as error:
                yield error.message


def _prompts(parts: EngineParts, assistants: list[dict[str, Any]]) -> Iterator[str]:
    from zaia_cli.agent.prompt import load_prompt

    for row in assistants:
        sample = {
            "organization": {
                "slug": row["organization_id"],
                "name": row["name"],
                "timezone": row["timezone"],
                "departments": [],
            },
            "assistant": {"slug": row["slug"]},
            "contact": {"name": "Maria"},
            "now": "01/01/2026 12:00",
            "channel": "whatsapp",
        }
        try:
            load_prompt(parts.prompts_dir, row["prompt"], row["prompt_version"]).render(sample)
        except ZaiaError as error:
            yield error.message


def _tokens(accounts: list[dict[str, Any]]) -> Iterator[str]:
    for row in accounts:
        if row["token_env"] and not os.environ.get(row["token_env"]):
            yield f"{row['token_env']} is not set ({row['channel']}:{row['account']} of {row['organization_id']})"
