"""``zaia``: the table of commands, loaded one at a time, and the one place where errors become exit codes.

Idea: ``COMMANDS`` names each command's module and its line in ``zaia --help``; a module is imported when its command is
used. Invariant: ``zaia --help`` imports no command, so no litellm, pandas, SQLAlchemy or psycopg. Tested in
``tests/cli/test_app.py``.

To add a command: one file ``zaia_cli/cli/<name>.py`` and one line in ``COMMANDS``. The file exposes a function made
with ``@command`` or, for several commands under one word, ``app = group("…")`` from ``zaia_cli.cli.command``.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from zaia_cli.cli.errors import report

__all__ = ["COMMANDS", "Entry", "app", "main"]


class Entry(NamedTuple):
    """Where a command is, ``module:attribute`` below ``zaia_cli.cli``, and its line in ``zaia --help``."""

    target: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "init": Entry("init:init", "Make a new workspace from the packaged example."),
    "demo": Entry("demo:demo", "Run the main job once, without keys and without services."),
    "doctor": Entry("doctor:doctor", "Check configuration, prompts, keys, prices and the database."),
    "db": Entry("db:app", "Upgrade, inspect, locate or reset the database."),
    "org": Entry("org:app", "Create, update, list, show and export organizations; open a closed channel account."),
    "serve": Entry("serve:serve", "Receive webhooks of WhatsApp and Instagram, and generic requests."),
    "ingest": Entry("ingest:ingest", "Take in payloads from a file through the intake that webhooks use."),
    "run-worker": Entry("run_worker:run_worker", "Answer customers: run turns, send replies, keep time."),
    "chat": Entry("chat:chat", "Talk to an assistant in the terminal."),
    "status": Entry("status:status", "Show the health of the engine now."),
    "queue": Entry("queue:app", "See the queue, and retry, cancel or prioritize its items."),
    "trace": Entry("trace:trace", "Show everything about one request."),
    "replay": Entry("replay:replay", "Tell the story of one conversation from the log."),
    "reconcile": Entry("reconcile:reconcile", "List stuck and unknown replies, or settle one of them."),
    "human": Entry("human:app", "List, take, answer and give back the conversations that people hold."),
    "approvals": Entry("approvals:app", "List, show, approve or reject what tools ask for."),
    "cost-report": Entry(
        "cost_report:cost_report", "Add up the ledger of model calls, failed and retried ones included."
    ),
    "sim": Entry("sim:app", "Local stand-ins over real HTTP: a model provider and a Graph API."),
}


class _LazyGroup(TyperGroup):
    """Root group: commands come from ``COMMANDS``, errors go through ``report``."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        return TyperCommand(name=cmd_name, help=entry.summary) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = {name: TyperCommand(name=name) for name in COMMANDS}
        name, found, rest = super().resolve_command(ctx, args)
        return name, (_load(name) if name is not None else found), rest

    def invoke(self, ctx: Any) -> Any:
        given = ctx.args[: ctx.args.index("--")] if "--" in ctx.args else list(ctx.args)
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            verbose = "-v" in given or "--verbose" in given
            raise typer.Exit(report(error, as_json="--json" in given, verbose=verbose)) from error


def _load(name: str) -> Any:
    module, attribute = COMMANDS[name].target.split(":")
    target = getattr(importlib.import_module(f"zaia_cli.cli.{module}"), attribute)
    if not isinstance(target, typer.Typer):
        function, target = target, typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        target.command(name)(function)
    loaded = typer.main.get_command(target)
    loaded.name = name
    return loaded


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Durable engine for customer-service AI agents.

    \b
    Start here:
      zaia init my-workspace
      zaia doctor
    """


def main() -> None:
    """Run the command line; the entry point of the installed script."""
    app(prog_name="zaia")
