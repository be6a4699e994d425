"""The files of the repository that tests of the repository look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "parsed", "python_files", "shipped_files", "text_files"]

ROOT = Path(__file__).parents[2]

_SKIPPED = {"build", "dist", "node_modules"}
_BINARY = {".png", ".jpg", ".ogg", ".pdf", ".gz", ".parquet", ".whl"}


def python_files() -> list[Path]:
    """Every Python file of ours that is not a list of tests, sorted."""
    return [path for path in text_files() if path.suffix == ".py" and not path.name.startswith("test_")]


def shipped_files() -> list[Path]:
    """Every Python file of the package, sorted; migrations, whose names Alembic decides, apart."""
    package = ROOT / "zaia_cli"
    return [path for path in python_files() if package in path.parents and "migrations" not in path.parts]


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file outside hidden and generated folders, and what CI runs."""
    return tuple(sorted([*_walk(ROOT), ROOT / ".ci" / "run", ROOT / ".gitignore"]))


@cache
def parsed(path: Path) -> ast.Module:
    """Parse one Python file."""
    return ast.parse(path.read_text("utf-8"), filename=str(path))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")) or path.name in _SKIPPED or path.suffix in _BINARY:
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path
