"""``zaia doctor``: is everything there that a worker needs?

Idea: every check says ok, warning or failed, and what to do; the exit code is that of the first kind of failure (2
configuration, 5 database away, 6 migrations). Invariant: it reads only, prints no secret, and one failed check does not
hide the others. Tested in ``tests/cli/test_doctor.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.runtime import Setup, load_setup, open_dsn
from zaia_cli.core.config import Config
from zaia_cli.core.errors import ZaiaError
from zaia_cli.core.loading import load_organization
from zaia_cli.core.organization import OrganizationFile

__all__ = ["Check", "doctor"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYLESS = "scripted/"


@dataclass(frozen=True, slots=True)
class Check:
    """One answer; ``exit_code`` is what it asks of the command when it failed."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    hint: str | None = None
    exit_code: int = 0


@command(examples=("zaia doctor", "zaia doctor --workspace my-workspace --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def doctor(options: Options) -> None:
    """Check configuration, prompts, keys, prices and the database.

    Changes nothing, except that the embedded database is started (and made, the first time). Warnings do not fail.
    """
    try:
        setup = load_setup(options)
    except ZaiaError as error:
        _answer(options, [_failed("configuration", error)])
        return
    checks = [Check("configuration", "ok", str(setup.workspace.config_file))]
    organizations: list[OrganizationFile] = []
    for file in setup.workspace.organization_files:
        try:
            organizations.append(load_organization(file))
            checks.append(Check("organization", "ok", f"{organizations[-1].organization.slug} ({file.name})"))
        except ZaiaError as error:
            checks.append(_failed("organization", error))
    checks += _prompts(setup.workspace.prompts_dir, organizations)
    checks += _model_keys(setup.config, organizations)
    checks += _channel_keys(organizations)
    checks += _prices(setup.config, organizations)
    checks += await _database(setup)
    _answer(options, checks)


def _answer(options: Options, checks: Sequence[Check]) -> None:
    failed = [check for check in checks if check.state == "failed"]
    code = min((check.exit_code for check in failed), default=0)
    document: dict[str, Any] = {
        "ok": not failed,
        "checks": [
            {"name": check.name, "state": check.state, "detail": check.detail, "hint": check.hint} for check in checks
        ],
    }
    if failed:
        first = next(check for check in failed if check.exit_code == code)
        document["error"] = {"kind": "doctor", "message": f"{first.name}: {first.detail}", "hint": first.hint}
    options.output.json(document)
    columns = ("check", "state", "detail", "what to do")
    options.output.table(columns, [(each.name, each.state, each.detail, each.hint) for each in checks])
    if failed:
        options.output.note(f"{len(failed)} of {len(checks)} checks failed")
        raise typer.Exit(code)


def _failed(name: str, error: ZaiaError) -> Check:
    # A file that is named and missing is as much a wrong configuration as one that cannot be read.
    return Check(name, "failed", error.message, error.hint, 2 if error.exit_code == 4 else error.exit_code)


def _prompts(folder: Path, organizations: Sequence[OrganizationFile]) -> Iterator[Check]:
    from zaia_cli.agent.prompt import load_prompt

    wanted = [
        (company, slug, prompt, version)
        for company in organizations
        for slug, prompt, version in ((each.slug, each.prompt, each.prompt_version) for each in company.assistants)
    ]
    named = {(prompt, version) for _, _, prompt, version in wanted}
    for company in organizations[:1]:
        for file in sorted(folder.glob("*/*.md")):
            if (file.parent.name, file.stem) not in named:
                wanted.append((company, company.assistants[0].slug, file.parent.name, file.stem))
    for company, slug, prompt, version in wanted:
        try:
            load_prompt(folder, prompt, version).render(_sample(company, slug))
            yield Check("prompt", "ok", f"{prompt}/{version} renders for {company.organization.slug}")
        except ZaiaError as error:
            yield _failed("prompt", error)


def _sample(company: OrganizationFile, assistant: str) -> dict[str, Any]:
    section = company.organization
    return {
        "organization": {
            "slug": section.slug,
            "name": section.name,
            "timezone": section.timezone,
            "departments": [department.name for department in company.departments],
        },
        "assistant": {"slug": assistant},
        "contact": {"name": "Maria"},
        "now": datetime.now(ZoneInfo(section.timezone)).strftime("%Y-%m-%d %H:%M"),
        "channel": "whatsapp",
    }


def _models(organizations: Iterable[OrganizationFile]) -> list[str]:
    """Models that cost money or need a key, each once, in the order of the files."""
    named = (
        model
        for company in organizations
        for assistant in company.assistants
        for model in (assistant.model, *assistant.fallback_models)
    )
    return list(dict.fromkeys(model for model in named if not model.startswith(_KEYLESS)))


def _model_keys(config: Config, organizations: Sequence[OrganizationFile]) -> Iterator[Check]:
    models = _models(organizations)
    if not models:
        yield Check("model keys", "ok", "none needed: every model is scripted")
    for model in models:
        endpoint = next((e for glob, e in config.models.endpoints.items() if fnmatchcase(model, glob)), None)
        if endpoint is None:
            hint = f'add [models.endpoints."{model.partition("/")[0]}/*"] to zaia.toml'
            yield Check("model keys", "warning", f"no endpoint is configured for {model}", hint)
        elif endpoint.api_key_env:
            yield _variables("model keys", [endpoint.api_key_env], model, missing="failed")


def _channel_keys(organizations: Iterable[OrganizationFile]) -> Iterator[Check]:
    for company in organizations:
        for channel in company.channels:
            who = f"{channel.kind}:{channel.account}"
            names = [name for name in (channel.token_env, channel.app_secret_env, channel.verify_token_env) if name]
            if names:
                yield _variables("channel keys", names, who, missing="warning")


def _variables(check: str, names: Sequence[str], who: str, *, missing: Literal["warning", "failed"]) -> Check:
    if not all(_VARIABLE.fullmatch(name) for name in names):
        # Whatever stands there may be the secret itself.
        hint = "write the name of a variable there, keep the secret in the environment"
        return Check(check, "failed", f"{who} has something that is not the name of an environment variable", hint, 2)
    unset = [name for name in names if not os.environ.get(name)]
    if not unset:
        return Check(check, "ok", f"{who}: {', '.join(names)} set")
    hint = "set it in the environment" if len(unset) == 1 else "set them in the environment"
    return Check(check, missing, f"{who}: {', '.join(unset)} not set", hint, 2 if missing == "failed" else 0)


def _prices(config: Config, organizations: Sequence[OrganizationFile]) -> Iterator[Check]:
    from zaia_cli.models.prices import load_prices

    table = load_prices(config.prices)
    today = datetime.now(UTC).date()
    unknown = [model for model in _models(organizations) if table.lookup(model, today) is None]
    for model in unknown:
        yield Check("prices", "warning", f"{model} has no price", f'add [prices."{model}"] to zaia.toml')
    if not unknown:
        yield Check("prices", "ok", "every model has a price")


async def _database(setup: Setup) -> list[Check]:
    from zaia_cli.store import migrate
    from zaia_cli.store.database import Database, has_pgvector
    from zaia_cli.store.database_errors import describe_dsn

    is_embedded = setup.external_dsn is None
    checks: list[Check] = []
    try:
        with open_dsn(setup) as dsn:
            async with await Database.open(dsn, pool_size=1) as database:
                server = (await database.run("admin.server"))[0]
                where = "embedded" if is_embedded else describe_dsn(dsn)
                checks.append(Check("database", "ok", f"PostgreSQL {server['version']}, {where}"))
                checks.append(_pgvector(await has_pgvector(database)))
            if is_embedded:
                found = migrate.status(dsn)
                if found.state in ("empty", "behind"):
                    detail = f"{found.state}; the next command that uses it upgrades it to {found.head}"
                    checks.append(Check("migrations", "ok", detail))
                    return checks
            migrate.require_current(dsn)
            checks.append(Check("migrations", "ok", f"at {migrate.status(dsn).current}"))
    except ZaiaError as error:
        checks.append(_failed("migrations" if checks else "database", error))
    return checks


def _pgvector(is_there: bool) -> Check:
    if is_there:
        return Check("pgvector", "ok", "available")
    return Check(
        "pgvector", "warning", "not available", "install pgvector on the server; only the knowledge base needs it"
    )
