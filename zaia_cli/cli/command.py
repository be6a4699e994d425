"""What every command has in common: options, examples, exit codes, and a loop for async bodies.

Idea: ``@command(...)`` turns a function whose first parameter is ``options: Options`` into what Typer registers: the
shared options join its own, its help gains examples and exit codes, and a coroutine is run. Invariant: no command lacks
``--json``, ``--workspace``, ``--database-url``, ``--no-color`` or ``-v``. Tested in ``tests/cli/test_app.py``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from zaia_cli.cli.output import Output

__all__ = ["EXIT_CODES", "Options", "command", "group"]

EXIT_CODES = {
    0: "ok",
    1: "internal error",
    2: "usage or configuration",
    3: "a check failed",
    4: "not found",
    5: "dependency unavailable, safe to retry",
    6: "refused or conflict",
    7: "inconclusive",
    130: "interrupted",
}

_PANEL = "Options of every command"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of every command.

    ``database_url`` comes from the command line alone; environment and ``zaia.toml`` are read with the configuration.
    """

    json: bool = False
    workspace: Path | None = None
    database_url: str | None = None
    no_color: bool = False
    verbose: bool = False

    @property
    def output(self) -> Output:
        """Where this command answers."""
        return Output(as_json=self.json, no_color=self.no_color)


_ANNOTATIONS: dict[str, Any] = {
    "json": Annotated[bool, typer.Option("--json", help="Answer with one JSON document.", rich_help_panel=_PANEL)],
    "workspace": Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            envvar="ZAIA_WORKSPACE",
            metavar="DIR",
            help="Folder with zaia.toml; else the nearest parent that has one.",
            rich_help_panel=_PANEL,
        ),
    ],
    "database_url": Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            help="PostgreSQL to use; wins over ZAIA_DATABASE_URL and zaia.toml.",
            rich_help_panel=_PANEL,
        ),
    ],
    "no_color": Annotated[bool, typer.Option("--no-color", help="Print without colours.", rich_help_panel=_PANEL)],
    "verbose": Annotated[
        bool, typer.Option("-v", "--verbose", help="Log more; show tracebacks.", rich_help_panel=_PANEL)
    ],
}


def command(
    *, examples: Sequence[str], exit_codes: Sequence[int] = (0, 1, 2)
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command out of a function, plain or async, that takes ``options: Options`` first.

    Args:
        examples: At least two command lines, shown in ``--help``.
        exit_codes: Those that this command may end with; the meanings come from ``EXIT_CODES``. 130 always may.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            options = Options(**{field.name: arguments.pop(field.name) for field in fields(Options)})
            _log(options)
            result = function(options, **arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)

        shared = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=_ANNOTATIONS[field.name]
            )
            for field in fields(Options)
        ]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + shared
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = _help(function, examples, exit_codes)
        return run

    return decorate


def group(help_text: str) -> typer.Typer:
    """Make the Typer application of a command with subcommands."""
    made = typer.Typer(help=help_text, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    # Without a callback Typer folds a group that has a single command into that command.
    made.callback()(_nothing)
    return made


def _nothing() -> None:
    """Take no options before the subcommand."""


def _help(function: Callable[..., Any], examples: Sequence[str], exit_codes: Sequence[int]) -> str:
    shown = "\n".join(f"  {example}" for example in examples)
    codes = "\n".join(f"  {code}  {EXIT_CODES[code]}" for code in sorted({*exit_codes, 130}))
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    told = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return f"{told}\n\n\b\nExamples:\n{shown}\n\n\b\nExit codes:\n{codes}\n"


def _log(options: Options) -> None:
    """Log this package to the stderr of this command; the root logger belongs to whoever embeds us."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("zaia_cli")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if options.verbose else logging.WARNING)
