"""``zaia org``: applying organization files and reading them back; twice is the same as once.

Tested in ``tests/cli/test_org.py``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.queue import Operator, operator_name, tell
from zaia_cli.cli.runtime import load_setup, open_runtime

__all__ = ["app", "apply", "export", "list_organizations", "show", "unblock"]

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The organization's slug.", show_default=False)]

app = group("Create, update, list, show and export organizations; open a closed channel account.")


@app.command()
@command(
    examples=("zaia org apply fixtures/organizations/loja-exemplo.toml", "zaia org apply a.toml b.toml --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def apply(
    options: Options,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Organization files.", show_default=False)],
) -> None:
    """Create or update organizations from files.

    Every file is checked before the first is applied; each is applied whole or not at all. Safe to repeat.
    Refuses, and changes nothing, when a prompt or a tool that an assistant names does not exist.
    """
    from zaia_cli.cli.readiness import check_organization
    from zaia_cli.core.loading import load_organization
    from zaia_cli.store import organizations

    loaded = [load_organization(path) for path in files]
    prompts_dir = load_setup(options).workspace.prompts_dir
    for file in loaded:
        for remark in check_organization(file, prompts_dir):
            options.output.note(remark)
    async with open_runtime(options) as runtime:
        applied = [await organizations.apply(runtime.database, file) for file in loaded]
    told = [
        {"organization": each.slug, "outcome": each.outcome, "changes": [asdict(change) for change in each.changes]}
        for each in applied
    ]
    options.output.json({"organizations": told})
    options.output.table(
        ("organization", "what", "change", "why"),
        ((each.slug, change.what, change.change, change.why) for each in applied for change in each.changes),
    )
    for each in applied:
        options.output.note(f"{each.slug}: {each.outcome}")


@app.command("list")
@command(examples=("zaia org list", "zaia org list --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def list_organizations(options: Options) -> None:
    """List organizations."""
    from zaia_cli.store import organizations

    async with open_runtime(options) as runtime:
        rows = await organizations.list_organizations(runtime.database)
    options.output.json({"organizations": rows})
    columns = ("organization", "name", "timezone", "assistants", "departments", "channels")
    options.output.table(columns, (tuple(row[name] for name in columns) for row in rows))


@app.command()
@command(examples=("zaia org show loja-exemplo", "zaia org show loja-exemplo --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def show(options: Options, slug: Slug) -> None:
    """Show one organization: settings, departments, assistants, channels and priority rules."""
    from zaia_cli.store import organizations

    async with open_runtime(options) as runtime:
        found = await organizations.read(runtime.database, slug)
    options.output.json(found)
    lines: list[tuple[str, Any]] = list(found["organization"].items())
    lines += [("department", f"{row['name']} -> {row['assignee'] or '(default)'}") for row in found["departments"]]
    lines += [
        ("assistant", f"{row['slug']}: {row['prompt']}/{row['prompt_version']}, {row['model']}, tools {row['tools']}")
        for row in found["assistants"]
    ]
    lines += [
        (
            "channel",
            f"{row['kind']}:{row['account']} -> {row['assistant']}, last event {row['last_event_at'] or 'none'}",
        )
        for row in found["channels"]
    ]
    lines += [
        (f"priority rule {n}", f"{rule['class']}: {rule['description']} ({rule['owner']})")
        for n, rule in enumerate(found["priority_rules"], start=1)
    ]
    options.output.table(("what", "value"), lines)


@app.command()
@command(
    examples=("zaia org export loja-exemplo > loja.toml", "zaia org export loja-exemplo --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def export(options: Options, slug: Slug) -> None:
    """Write the organization file of what is stored; applying it changes nothing."""
    from zaia_cli.store import organizations

    async with open_runtime(options) as runtime:
        text = await organizations.export(runtime.database, slug)
    options.output.json({"organization": slug, "toml": text})
    options.output.line(text.rstrip("\n"))


@app.command()
@command(
    examples=(
        "zaia org unblock loja-exemplo whatsapp:100000000000001 --as ana",
        "ZAIA_OPERATOR=ana zaia org unblock loja-exemplo whatsapp:100000000000001 --json",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def unblock(
    options: Options,
    slug: Slug,
    account: Annotated[str, typer.Argument(metavar="CHANNEL:ACCOUNT", help="As in zaia status.", show_default=False)],
    by: Operator = None,
) -> None:
    """Open a channel account that was closed because the channel refused it; waiting replies go out."""
    from zaia_cli.engine.gates import gate_name, open_gate

    name = operator_name(by)
    channel, _, number = account.partition(":")
    async with open_runtime(options) as runtime:
        tell(options.output, await open_gate(runtime.database, slug, gate_name(channel, number), by=name))
