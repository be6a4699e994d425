"""``zaia init``: a new workspace from the packaged one; overwrites nothing. Tested in ``tests/cli/test_init.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.workspace import make_workspace

__all__ = ["init"]


@command(examples=("zaia init", "zaia init my-workspace --json"), exit_codes=(0, 1, 2, 5, 6))
def init(
    options: Options,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", show_default=False)] = Path("."),
) -> None:
    """Make a new workspace from the packaged example.

    Copies zaia.toml, prompts, evals, fixtures and runbooks into DIR (the current folder by default). Refuses, and
    changes nothing, when one of those files is already there.
    """
    root = directory.expanduser().resolve()
    files = make_workspace(root)
    output = options.output
    output.json({"workspace": root, "files": files})
    output.line(str(root))
    output.note(f"{len(files)} files; next: cd {directory} && zaia doctor")
