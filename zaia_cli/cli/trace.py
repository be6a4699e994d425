"""``zaia trace``: everything about one request; reads only. Tested in ``tests/cli/test_reports.py``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.output import Output
from zaia_cli.cli.queue import Organization
from zaia_cli.cli.replay import print_story
from zaia_cli.cli.runtime import open_runtime

__all__ = ["trace"]


@command(examples=("zaia trace ZA-7F3K2QXM", "zaia trace wamid.HBgN --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def trace(
    options: Options,
    ref: Annotated[
        str, typer.Argument(metavar="REF", help="A reference number, a message's, reply's or conversation's id.")
    ],
    org: Organization = None,
) -> None:
    """Show everything about one request.

    The item with its references, class and rule, attempts, steps, tools and model calls with their cost, replies with
    parts, deliveries and statuses, receipts, events and alerts. A conversation shows all of its items.
    """
    from zaia_cli.reports.lookup import find
    from zaia_cli.reports.trace import request_trace

    async with open_runtime(options) as runtime:
        target = await find(runtime.database, ref, organization=org)
        found = await request_trace(runtime.database, target)
    options.output.json(found)
    if not options.json:
        _print(options.output, found)


def _print(output: Output, found: dict[str, Any]) -> None:
    for item in found["items"]:
        also = f", also {', '.join(item['aliases'])}" if item["aliases"] else ""
        rule = f", rule: {item['class_rule']}" if item["class_rule"] else ""
        output.line(f"{item['reference']}{also}: {item['state']}, {item['class']}{rule}, trace {item['trace_id']}")
    print_story(output, found)
    cost = found["cost"]
    output.line("")
    output.line(
        f"cost: USD {cost['cost_usd'] or 'unknown'} in {cost['calls']} model calls, {cost['unpriced_calls']} of "
        f"unknown cost, {cost['failed_calls']} failed"
    )
    output.table(
        ("reference", "attempt", "step", "try", "purpose", "model", "outcome", "tokens", "cost USD", "ms"),
        (
            (
                item["reference"],
                *(call[name] for name in ("attempt", "step", "try", "purpose", "model", "outcome")),
                sum(call[f"{name}_tokens"] or 0 for name in ("input", "cache_read", "cache_write", "output")),
                call["cost_usd"],
                call["latency_ms"],
            )
            for item in found["items"]
            for call in item["model_calls"]
        ),
    )
    for receipt in found["receipts"]:
        output.line(f"receipt: {receipt['kind']} {receipt['provider_id']}, repeated {receipt['repeats']} times")
    for alert in found["alerts"]:
        output.line(f"alert: {alert['kind']} ({alert['state']}, {alert['occurrences']} times): {alert['message']}")
