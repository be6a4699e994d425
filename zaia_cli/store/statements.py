"""Named SQL statements, kept as text in ``sql/*.sql``.

Idea: a block starts with ``-- name: insert_receipts``, goes on with comment lines that say why, then SQL; it is called
``<file stem>.<name>``. Parameters are ``%(name)s``, so a literal percent sign is written ``%%``. Invariant: a name
exists once, and nothing stands outside a block. Tested in ``tests/store/test_database.py``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["parse_statements", "statement", "statements"]

_NAME = re.compile(r"^-- name:\s*([a-z][a-z0-9_]*)\s*$", re.MULTILINE)


def parse_statements(stem: str, text: str) -> dict[str, str]:
    """Cut the text of one file into its statements, keyed ``stem.name``; comments stay in the SQL.

    Raises:
        ValueError: A name is there twice, a block is empty, or SQL stands before the first name.
    """
    before, *parts = _NAME.split(text)
    if _without_comments(before):
        raise ValueError(f"{stem}.sql: SQL before the first '-- name:' line")
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        key = f"{stem}.{name}"
        if key in found:
            raise ValueError(f"{stem}.sql: statement {name} is there twice")
        if not _without_comments(body):
            raise ValueError(f"{stem}.sql: statement {name} is empty")
        found[key] = body.strip()
    return found


@cache
def statements() -> dict[str, str]:
    """Return every packaged statement by name; read once per process."""
    folder = files("zaia_cli.store") / "sql"
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            found |= parse_statements(file.name.removesuffix(".sql"), file.read_text("utf-8"))
    return found


def statement(name: str) -> str:
    """Return the SQL of one statement.

    Raises:
        LookupError: There is no such name; the message lists the names of its file.
    """
    found = statements()
    if name not in found:
        stem = name.partition(".")[0]
        near = ", ".join(sorted(key for key in found if key.startswith(f"{stem}."))) or "no file of that stem"
        raise LookupError(f"no statement {name}: {near}")
    return found[name]


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
