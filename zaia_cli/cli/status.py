"""``zaia status``: health now, on one page; reads only. Tested in ``tests/cli/test_reports.py``."""

from __future__ import annotations

from typing import Any

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.output import Output
from zaia_cli.cli.queue import Organization
from zaia_cli.cli.runtime import open_runtime

__all__ = ["status"]


@command(examples=("zaia status", "zaia status --org loja-exemplo --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def status(options: Options, org: Organization = None) -> None:
    """Show the health of the engine now.

    Database and migrations, workers, open items with the age of the oldest, leases, unknown replies, the human lane,
    closed gates, unsent alerts, and the last 24 hours. What needs a person is listed under problems.
    """
    from zaia_cli.reports.status import health
    from zaia_cli.store import migrate
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        found = await health(runtime.database, organization=org)
        migrations = migrate.status(runtime.dsn)
    found["migrations"] = {"state": migrations.state, "current": migrations.current, "head": migrations.head}
    options.output.json(found)
    if not options.json:
        _print(options.output, found)


def _print(output: Output, found: dict[str, Any]) -> None:
    workers, leases, database = found["workers"], found["leases"], found["database"]
    lines: list[tuple[str, Any]] = [
        ("database", f"{database['name']}, PostgreSQL {database['version']}, {database['size_bytes']} bytes"),
        ("migrations", f"{found['migrations']['state']} ({found['migrations']['current']})"),
        ("workers", f"{workers['alive']} alive, {workers['silent']} silent, {workers['in_flight']} turns in flight"),
        ("leases", f"{leases['live']} live, {leases['expired']} expired"),
    ]
    lines += [
        (f"queue {row['state']} {row['class']}", f"{row['items']}, oldest {row['oldest_s']:.0f} s")
        for row in found["queue"]
    ]
    lines += [(name.replace("_", " "), value) for name, value in found["waiting"].items()]
    lines += [
        (
            f"gate {gate['organization']} {gate['name']}",
            f"closed: {gate['reason']}, until {gate['closed_until'] or 'opened'}",
        )
        for gate in found["gates"]
    ]
    lines += [(f"24 h {name.replace('_', ' ')}", value) for name, value in found["last_24h"].items()]
    lines += [("problem", problem) for problem in found["problems"]] or [("problem", "none")]
    output.table(("what", "value"), lines)
