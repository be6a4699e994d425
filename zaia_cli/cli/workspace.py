"""Workspaces: finding one, copying the packaged one.

Idea: a workspace is a folder with ``zaia.toml``; ``--workspace``, the nearest parent or the packaged example, in that
order. Invariant: nothing that a person wrote is overwritten, and two processes that start at once share one copy.
Tested in ``tests/cli/test_workspace.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

import zaia_cli
from zaia_cli.core.errors import NotFoundError, RefusedError, UnavailableError

__all__ = ["WORKSPACE_PARTS", "Workspace", "data_dir", "find_workspace", "make_workspace"]

WORKSPACE_PARTS = ("zaia.toml", "prompts", "evals", "fixtures", "runbooks")
_FILE = "zaia.toml"
_IGNORED = "# Embedded database, logs and run records.\n.zaia/\n"

FoundBy = Literal["option", "parent", "example"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with ``zaia.toml``; ``found_by`` tells how it was chosen."""

    root: Path
    found_by: FoundBy = "option"

    @property
    def config_file(self) -> Path:
        """Where the configuration is."""
        return self.root / _FILE

    @property
    def prompts_dir(self) -> Path:
        """Where ``<name>/<version>.md`` are."""
        return self.root / "prompts"

    @property
    def fixtures_dir(self) -> Path:
        """Where the example organization, payloads and scripts are."""
        return self.root / "fixtures"

    @property
    def organization_files(self) -> list[Path]:
        """The organization files of this workspace, sorted by name."""
        return sorted((self.fixtures_dir / "organizations").glob("*.toml"))

    @property
    def state_dir(self) -> Path:
        """``.zaia``, made when it is not there; holds the embedded database and logs.

        Raises:
            UnavailableError: The folder cannot be written.
        """
        state = self.root / ".zaia"
        try:
            state.mkdir(exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"{state} cannot be made: {error.strerror}",
                hint="use a folder that you may write: zaia init DIR, then --workspace DIR",
            ) from None
        return state


def data_dir() -> Path:
    """Locate the packaged text: inside the wheel, or the repository root in a checkout.

    Raises:
        NotFoundError: Neither is there.
    """
    package = Path(zaia_cli.__file__).parent
    for candidate in (package / "_data", package.parent):
        if (candidate / _FILE).is_file():
            return candidate
    raise NotFoundError("the packaged example workspace is missing", hint="install zaia again")


def find_workspace(given: Path | None, start: Path) -> Workspace:
    """Find the workspace of a command.

    Args:
        given: ``--workspace`` or ``ZAIA_WORKSPACE``.
        start: Usually the current folder; it and its parents are looked at.

    Raises:
        NotFoundError: ``given`` has no ``zaia.toml``.
        UnavailableError: The packaged example cannot be copied into the user data folder.
    """
    if given is not None:
        root = given.expanduser().resolve()
        if not (root / _FILE).is_file():
            raise NotFoundError(f"{root} has no {_FILE}", hint=f"make a workspace there: zaia init {given}")
        return Workspace(root, "option")
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / _FILE).is_file():
            return Workspace(folder, "parent")
    return Workspace(_example(), "example")


def make_workspace(target: Path) -> list[Path]:
    """Copy the packaged workspace into ``target``; return the files made, relative and sorted.

    Raises:
        RefusedError: A file that would be written is already there; nothing was changed.
        UnavailableError: The folder cannot be written.
    """
    source = data_dir()
    files = sorted(_packaged_files(source))
    taken = [str(file) for file in files if (target / file).exists()]
    if taken:
        more = f" and {len(taken) - 3} more" if len(taken) > 3 else ""
        raise RefusedError(
            f"{target} already has {', '.join(taken[:3])}{more}; nothing was changed", hint="choose an empty folder"
        )
    try:
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, target / file)
        ignore = target / ".gitignore"
        if not ignore.exists():
            ignore.write_text(_IGNORED, encoding="utf-8")
            files.append(Path(".gitignore"))
    except OSError as error:
        raise UnavailableError(f"{target} cannot be written: {error.strerror}") from None
    return sorted(files)


def _packaged_files(source: Path) -> Iterator[Path]:
    for part in WORKSPACE_PARTS:
        if (source / part).is_file():
            yield Path(part)
        for file in (source / part).rglob("*"):
            if file.is_file() and not any(name.startswith((".", "__")) for name in file.relative_to(source).parts):
                yield file.relative_to(source)


def _example() -> Path:
    target = platformdirs.user_data_path("zaia", appauthor=False) / "workspace"
    if (target / _FILE).is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            make_workspace(Path(made) / "workspace")
            try:
                os.replace(Path(made) / "workspace", target)
            except OSError:
                if not (target / _FILE).is_file():
                    raise
    except OSError as error:
        raise UnavailableError(
            f"the example workspace cannot be copied to {target}: {error.strerror}", hint="make one: zaia init DIR"
        ) from None
    return target
