"""What a worker must have before it takes the first customer: keys, tokens, prompts.

Idea: a process that cannot finish its turns must not claim them, because each would end with a person. Invariant:
nothing is claimed when this refuses, and everything that is missing is named at once. Tested in
``tests/cli/test_run_worker.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zaia_cli.core.errors import ConfigError, ZaiaError

if TYPE_CHECKING:
    from zaia_cli.core.organization import OrganizationFile
    from zaia_cli.engine.parts import EngineParts
    from zaia_cli.models.router import ModelRouter

__all__ = ["check_organization", "require_ready"]


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
        hint = "correct them (zaia org apply) or set the variables here; --without-tokens starts without channel tokens"
        raise ConfigError("this worker cannot serve: " + "; ".join(dict.fromkeys(problems)), hint=hint)


def check_organization(file: OrganizationFile, prompts_dir: Path) -> list[str]:
    """Check what an organization file names outside itself, before it is applied.

    Returns:
        Remarks about what is accepted and not in this version yet.

    Raises:
        ConfigError: An assistant's prompt does not render, or a tool does not exist.
    """
    from zaia_cli.agent.tools import BUILT_IN, LATER, choose_tools

    slug, remarks = file.organization.slug, []
    for assistant in file.assistants:
        named = {"organization_id": slug, "name": file.organization.name, "timezone": file.organization.timezone}
        row = named | {"slug": assistant.slug, "prompt": assistant.prompt, "prompt_version": assistant.prompt_version}
        problem = _prompt_problem(row, prompts_dir)
        if problem:
            raise ConfigError(problem, hint="nothing was changed; correct the file and apply it again")
        choose_tools(assistant.tools, BUILT_IN)
        remarks += [
            f"{slug}/{assistant.slug}: {tool} is not in this version yet" for tool in LATER & {*assistant.tools}
        ]
        if assistant.daily_budget_usd or assistant.monthly_budget_usd:
            remarks.append(f"{slug}/{assistant.slug}: budgets are kept and not enforced in this version")
    if file.organization.daily_budget_usd or file.organization.monthly_budget_usd:
        remarks.append(f"{slug}: budgets are kept and not enforced in this version")
    return remarks


def _models(router: ModelRouter, assistants: list[dict[str, Any]]) -> Iterator[str]:
    for row in assistants:
        for model in (row["model"], *row["fallback_models"]):
            try:
                router.check(model)
            except ZaiaError as error:
                yield f"{error.message} (assistant {row['organization_id']}/{row['slug']})"


def _prompts(parts: EngineParts, assistants: list[dict[str, Any]]) -> Iterator[str]:
    for row in assistants:
        if problem := _prompt_problem(row, parts.prompts_dir):
            yield problem


def _prompt_problem(row: dict[str, Any], prompts_dir: Path) -> str | None:
    from zaia_cli.agent.prompt import load_prompt

    company = {"slug": row["organization_id"], "name": row["name"], "timezone": row["timezone"], "departments": []}
    sample = {
        "organization": company,
        "assistant": {"slug": row["slug"]},
        "contact": {"name": "Maria"},
        "now": "01/01/2026 12:00",
        "channel": "whatsapp",
    }
    try:
        load_prompt(prompts_dir, row["prompt"], row["prompt_version"]).render(sample)
    except ZaiaError as error:
        return f"{error.message} (assistant {row['organization_id']}/{row['slug']})"
    return None


def _tokens(accounts: list[dict[str, Any]]) -> Iterator[str]:
    for row in accounts:
        if row["organization_id"] != "demo" and row["token_env"] and not os.environ.get(row["token_env"]):
            yield f"{row['token_env']} is not set ({row['channel']}:{row['account']} of {row['organization_id']})"
