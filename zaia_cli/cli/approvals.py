"""``zaia approvals``: what waits for a person's decision, and deciding it. Tested in ``tests/cli/test_reports.py``."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.queue import Operator, Organization, Rows, Why, operator_name, tell
from zaia_cli.cli.runtime import open_runtime

__all__ = ["app", "approve", "list_approvals", "reject", "show"]

ApprovalId = Annotated[UUID, typer.Argument(metavar="ID", help="The approval's id.", show_default=False)]

app = group("List, show, approve or reject what tools ask for.")


@app.command("list")
@command(examples=("zaia approvals list", "zaia approvals list --all --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def list_approvals(
    options: Options,
    org: Organization = None,
    show_all: Annotated[bool, typer.Option("--all", help="Decided ones as well.")] = False,
    limit: Rows = 50,
) -> None:
    """List approvals, the longest waiting on top."""
    from zaia_cli.reports.people import approvals
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        rows = await approvals(runtime.database, organization=org, state=None if show_all else "waiting", limit=limit)
    options.output.json({"approvals": rows})
    columns = ("id", "organization", "reference", "tool", "arguments", "state", "assignee", "created_at", "decided_by")
    options.output.table(columns, (tuple(row[name] for name in columns) for row in rows))


@app.command()
@command(
    examples=(
        "zaia approvals show 01890a5d-ac96-774b-bcce-b302099a8057",
        "zaia approvals show 01890a5d-ac96-774b-bcce-b302099a8057 --json",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def show(options: Options, approval: ApprovalId, org: Organization = None) -> None:
    """Show one approval: tool, arguments, who decides, and what was decided."""
    from zaia_cli.reports.people import approval as find_approval

    async with open_runtime(options) as runtime:
        row = await find_approval(runtime.database, approval, organization=org)
    options.output.json(row)
    options.output.table(("field", "value"), row.items())


@app.command()
@command(
    examples=(
        "zaia approvals approve 01890a5d-ac96-774b-bcce-b302099a8057 --as ana",
        'zaia approvals approve 01890a5d-ac96-774b-bcce-b302099a8057 --as ana --why "receipt checked"',
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def approve(
    options: Options, approval: ApprovalId, by: Operator = None, why: Why = "", org: Organization = None
) -> None:
    """Let the tool act."""
    await _decide(options, approval, is_approved=True, by=by, why=why, org=org)


@app.command()
@command(
    examples=(
        'zaia approvals reject 01890a5d-ac96-774b-bcce-b302099a8057 --as ana --why "no receipt"',
        "zaia approvals reject 01890a5d-ac96-774b-bcce-b302099a8057 --as ana",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def reject(
    options: Options, approval: ApprovalId, by: Operator = None, why: Why = "", org: Organization = None
) -> None:
    """Refuse; the model is told why and goes on without it."""
    await _decide(options, approval, is_approved=False, by=by, why=why, org=org)


async def _decide(
    options: Options, approval: UUID, *, is_approved: bool, by: str | None, why: str, org: str | None
) -> None:
    from zaia_cli.engine import approvals
    from zaia_cli.reports.people import approval as find_approval

    person = operator_name(by)
    async with open_runtime(options) as runtime:
        row = await find_approval(runtime.database, approval, organization=org)
        result = await approvals.decide(
            runtime.database, row["organization"], approval, approved=is_approved, by=person, why=why
        )
    tell(options.output, result)
