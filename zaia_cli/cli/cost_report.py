"""``zaia cost-report``: what the model calls cost, grouped as asked. Tested in ``tests/cli/test_reports.py``."""

from __future__ import annotations

import csv
import sys
from datetime import date
from typing import Annotated, Any, Literal

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.output import Output
from zaia_cli.cli.queue import Organization
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import ConfigError

__all__ = ["cost_report"]

_MEASURES = (
    "calls",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "cost_usd",
    "unpriced_calls",
    "failed_calls",
    "unmetered_calls",
    "cache_hit_ratio",
)


@command(
    examples=(
        "zaia cost-report --by organization,prompt_version",
        "zaia cost-report --by day,model --since 2026-10-01 --until 2026-10-31 --format csv",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def cost_report(
    options: Options,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="COLUMNS",
            help="Any of organization, assistant, prompt_version, model, conversation, purpose, day; with commas.",
        ),
    ] = "organization",
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="First day, included.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="Last day, included.")] = None,
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Where days begin; else in each organization's own zone.")
    ] = None,
    org: Organization = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Only the N dearest rows.")] = None,
    form: Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="How to write the rows.")] = "table",
) -> None:
    """Add up the ledger of model calls, failed and retried ones included.

    Amounts are USD. A call whose cost is unknown is counted as unpriced, never as zero; the total is that of all rows.
    """
    from zaia_cli.reports.cost import cost_report as add_up
    from zaia_cli.store.organizations import require

    columns = tuple(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        report = await add_up(
            runtime.database,
            by=columns,
            since=_day(since, "--since"),
            until=_day(until, "--until"),
            timezone=tz,
            organization=org,
            top=top,
        )
    if options.json or form == "json":
        Output(as_json=True).json(report)
    elif form == "csv":
        _write_csv(report, columns)
    else:
        _print(options.output, report, columns)


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} {text!r} is not a day", hint="write it as 2026-10-31", code="usage") from None


def _write_csv(report: dict[str, Any], columns: tuple[str, ...]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((*columns, *_MEASURES))
    writer.writerows([row[name] for name in (*columns, *_MEASURES)] for row in report["rows"])


def _print(output: Output, report: dict[str, Any], columns: tuple[str, ...]) -> None:
    names = (*columns, *_MEASURES)
    rows = [tuple(row[name] for name in names) for row in report["rows"]]
    total = report["total"]
    rows.append((*("total" if n == 0 else "" for n in range(len(columns))), *(total[name] for name in _MEASURES)))
    output.table(names, rows)
    output.note(f"USD, days in {report['timezone'] or '(no calls)'}, {report['since']} to {report['until']}")
    if report["omitted_rows"]:
        output.note(f"{report['omitted_rows']} more rows are in the total alone")
