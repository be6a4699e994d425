"""``zaia queue``: work items, their health and what a person may do to them.

Idea: reading is a report, acting is the engine's and always by a named person. Invariant: nothing here changes a row by
itself. Tested in ``tests/cli/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.output import Output
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import ConfigError

__all__ = [
    "Operator",
    "Organization",
    "Rows",
    "Why",
    "app",
    "cancel",
    "list_items",
    "operator_name",
    "prioritize",
    "rejected",
    "retry",
    "show",
    "stats",
    "tell",
]

Organization = Annotated[str | None, typer.Option("--org", metavar="SLUG", help="Only this organization.")]
Operator = Annotated[
    str | None, typer.Option("--as", envvar="ZAIA_OPERATOR", metavar="NAME", help="Who you are; kept in the log.")
]
Rows = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most this many rows.")]
Reference = Annotated[
    str, typer.Argument(metavar="REF", help="An id, ZA-…, a channel's message id, or channel:address.")
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason; kept in the log.")]

_WHY = "decided by a person"

app = group("See the queue, and retry, cancel or prioritize its items.")


def operator_name(by: str | None) -> str:
    """Return who acts.

    Raises:
        ConfigError: Nobody said who they are.
    """
    if by is None or not by.strip():
        raise ConfigError("this acts in a person's name, and there is none", hint="add --as NAME or set ZAIA_OPERATOR")
    return by.strip()


def tell(output: Output, result: Mapping[str, Any]) -> None:
    """Print what an action answered."""
    output.json(result)
    output.table(tuple(result), [tuple(result.values())])


@app.command("list")
@command(
    examples=("zaia queue list", "zaia queue list --state needs_human --class urgent --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def list_items(
    options: Options,
    state: Annotated[str | None, typer.Option("--state", metavar="S", help="Only this state.")] = None,
    org: Organization = None,
    item_class: Annotated[str | None, typer.Option("--class", metavar="C", help="Only this class.")] = None,
    limit: Rows = 50,
) -> None:
    """List work items: open ones first, the most urgent and oldest on top."""
    from zaia_cli.reports.queue import queue_items
    from zaia_cli.reports.timeline import error_text
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        items = await queue_items(runtime.database, organization=org, state=state, item_class=item_class, limit=limit)
    options.output.json({"items": items})
    options.output.table(
        ("reference", "organization", "state", "class", "attempts", "opened", "address", "worker", "error"),
        (
            (
                *(item[name] for name in ("reference", "organization", "state", "class", "attempts", "opened_at")),
                f"{item['channel']}:{item['address']}",
                item["worker"],
                error_text(item["error"]) if item["error"] else "",
            )
            for item in items
        ),
    )


@app.command()
@command(
    examples=("zaia queue show ZA-7F3K2QXM", "zaia queue show whatsapp:5511900010000 --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def show(options: Options, ref: Reference, org: Organization = None) -> None:
    """Show one work item with the proof of what became of it."""
    from zaia_cli.reports.lookup import find_item
    from zaia_cli.reports.queue import item_evidence
    from zaia_cli.reports.timeline import error_text

    async with open_runtime(options) as runtime:
        target = await find_item(runtime.database, ref, organization=org)
        document = await item_evidence(runtime.database, target)
    options.output.json(document)
    item, evidence = document["item"], document["evidence"]
    shown = ("reference", "organization", "conversation", "address", "state", "class", "class_rule", "opened_at")
    lines: list[tuple[str, Any]] = [(name, item[name]) for name in (*shown, "started_at", "completed_at")]
    lines.append(("attempts", len(item["attempts"])))
    lines += [("reply", f"{reply['kind']} {reply['state']}: {reply['text']}") for reply in evidence["replies"]]
    lines += [("provider message id", provider_id) for provider_id in evidence["provider_message_ids"]]
    lines += [("side effect", f"{each['name']} {each['state']}: {each['result']}") for each in evidence["side_effects"]]
    if evidence["error"]:
        lines.append(("error", error_text(evidence["error"])))
    options.output.table(("field", "value"), lines)


@app.command()
@command(examples=("zaia queue stats", "zaia queue stats --org loja-exemplo --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def stats(options: Options, org: Organization = None) -> None:
    """Count items by state, replies by outcome, and what waits."""
    from zaia_cli.reports.queue import queue_stats
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        counted = await queue_stats(runtime.database, organization=org)
    options.output.json(counted)
    lines: list[tuple[str, Any]] = []
    for name, value in counted.items():
        if name == "schema_version":
            continue
        if isinstance(value, dict):
            lines += [(f"{name} {inner}", number) for inner, number in value.items()]
        else:
            lines.append((name, value))
    options.output.table(("what", "count"), lines)


@app.command()
@command(examples=("zaia queue rejected", "zaia queue rejected --limit 5 --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def rejected(options: Options, org: Organization = None, limit: Rows = 50) -> None:
    """List inputs that could not be read, newest first; --json holds the raw input."""
    from zaia_cli.reports.queue import rejected_inputs
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        inputs = await rejected_inputs(runtime.database, organization=org, limit=limit)
    options.output.json({"rejected": inputs})
    columns = ("id", "at", "organization", "channel", "account", "path", "reason")
    options.output.table(columns, (tuple(row[name] for name in columns) for row in inputs))


@app.command()
@command(
    examples=("zaia queue retry ZA-7F3K2QXM --as ana", "ZAIA_OPERATOR=ana zaia queue retry ZA-7F3K2QXM"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def retry(options: Options, ref: Reference, by: Operator = None, org: Organization = None) -> None:
    """Put a failed item, or one in the human lane, back into the queue."""
    from zaia_cli.engine import people
    from zaia_cli.reports.lookup import find_item

    person = operator_name(by)
    async with open_runtime(options) as runtime:
        target = await find_item(runtime.database, ref, organization=org)
        result = await people.retry(runtime.database, target.organization, target.item_id, by=person)
    tell(options.output, result)


@app.command()
@command(
    examples=('zaia queue cancel ZA-7F3K2QXM --as ana --why "wrong number"', "zaia queue cancel ZA-7F3K2QXM --as ana"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def cancel(
    options: Options, ref: Reference, by: Operator = None, why: Why = _WHY, org: Organization = None
) -> None:
    """End an item without an answer."""
    from zaia_cli.engine import people
    from zaia_cli.reports.lookup import find_item

    person = operator_name(by)
    async with open_runtime(options) as runtime:
        target = await find_item(runtime.database, ref, organization=org)
        result = await people.cancel(runtime.database, target.organization, target.item_id, by=person, why=why)
    tell(options.output, result)


@app.command()
@command(
    examples=(
        "zaia queue prioritize ZA-7F3K2QXM --class urgent --as ana",
        'zaia queue prioritize ZA-7F3K2QXM --class background --as ana --why "can wait"',
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def prioritize(
    options: Options,
    ref: Reference,
    item_class: Annotated[
        str, typer.Option("--class", metavar="C", help="urgent, standard or background.", show_default=False)
    ],
    by: Operator = None,
    why: Why = _WHY,
    org: Organization = None,
) -> None:
    """Move an item to another class."""
    from zaia_cli.core.priority import BANDS
    from zaia_cli.engine import people
    from zaia_cli.reports.lookup import find_item

    person = operator_name(by)
    if item_class not in BANDS:
        raise ConfigError(f"no class named {item_class!r}", hint=f"one of: {', '.join(BANDS)}", code="usage")
    async with open_runtime(options) as runtime:
        target = await find_item(runtime.database, ref, organization=org)
        result = await people.prioritize(
            runtime.database, target.organization, target.item_id, item_class=item_class, by=person, why=why
        )
    tell(options.output, result)
