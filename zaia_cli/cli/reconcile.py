"""``zaia reconcile``: replies whose sending outcome is not known, and settling them by a person's word.

Idea: without an action it lists; an action settles one part. Invariant: nothing is sent again unless a named person
says so. Tested in ``tests/cli/test_reports.py``.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.queue import Operator, operator_name, tell
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import ConfigError, RefusedError
from zaia_cli.core.states import PART_TRANSITIONS

__all__ = ["reconcile"]

_TARGETS = {"resend": "pending", "mark_sent": "accepted", "fail": "failed"}
_PART = "<reply id>:<part number>, as listed"


@command(
    examples=(
        "zaia reconcile --older-than 600",
        "zaia reconcile --resend 01890a5d-ac96-774b-bcce-b302099a8057:1 --as ana",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def reconcile(
    options: Options,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than", min=0, metavar="S", help="Seconds without evidence; else delivery.unknown_after_s."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    resend: Annotated[str | None, typer.Option("--resend", metavar="ID", help="Send this part again.")] = None,
    mark_sent: Annotated[
        str | None, typer.Option("--mark-sent", metavar="ID", help="The customer has it: count it as accepted.")
    ] = None,
    fail: Annotated[str | None, typer.Option("--fail", metavar="ID", help="Give this part up.")] = None,
    by: Operator = None,
) -> None:
    """List stuck and unknown replies, or settle one of them.

    A resend is a new delivery: the customer may read the same text twice when the first one did arrive.
    """
    from zaia_cli.engine import reconcile as engine

    chosen = {name: part for name, part in (("resend", resend), ("mark_sent", mark_sent), ("fail", fail)) if part}
    if len(chosen) > 1:
        raise ConfigError("one action at a time: --resend, --mark-sent or --fail", code="usage")
    for part in chosen.values():
        _check_part(part)
    person = operator_name(by) if chosen and not dry_run else ""
    async with open_runtime(options) as runtime:
        age_s = runtime.config.delivery.unknown_after_s if older_than is None else older_than
        if chosen and not dry_run:
            action, part = next(iter(chosen.items()))
            settle = {"resend": engine.resend, "mark_sent": engine.mark_sent, "fail": engine.fail}[action]
            tell(options.output, await settle(runtime.database, part, by=person))
            return
        tasks = [dict(row) for row in await engine.open_tasks(runtime.database, 0 if chosen else age_s)]
    if chosen:
        action, part = next(iter(chosen.items()))
        tell(options.output, {"would": action, **_task(tasks, action, part)})
        return
    options.output.json({"older_than_s": age_s, "tasks": tasks})
    if not tasks:
        options.output.line("nothing to reconcile")
        return
    shown = [task | {"error": (task["error"] or {}).get("message")} for task in tasks]
    options.output.table(tuple(shown[0]), (tuple(task.values()) for task in shown))


def _check_part(text: str) -> None:
    reply, colon, number = text.rpartition(":")
    try:
        UUID(reply)
        is_part = bool(colon) and int(number) > 0
    except ValueError:
        is_part = False
    if not is_part:
        raise ConfigError(f"{text!r} names no part of a reply", hint=_PART, code="usage")


def _task(tasks: list[dict[str, Any]], action: str, part: str) -> dict[str, Any]:
    for task in tasks:
        if task["part"] == part:
            _require_move(action, task)
            return task
    raise RefusedError(f"{part} does not wait to be reconciled; nothing would be done", hint="zaia reconcile")


def _require_move(action: str, task: dict[str, Any]) -> None:
    wanted = (task["state"], _TARGETS[action])
    if not any((move.source, move.target) == wanted and "person" in move.by for move in PART_TRANSITIONS):
        raise RefusedError(f"{task['part']} is {task['state']}; nothing would be done", hint="zaia reconcile")
