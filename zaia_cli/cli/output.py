"""What a command prints: one answer on stdout, everything else on stderr.

Idea: a command says *what* it answers (a document, rows, a line); terminal, pipe and ``--json`` decide how it looks.
Invariant: piped rows are tab-separated and never cut; a JSON answer is one document with ``schema_version``. Tested in
``tests/cli/test_output.py``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

__all__ = ["SCHEMA_VERSION", "Output"]

SCHEMA_VERSION = 1
_FLAT = str.maketrans({"\t": " ", "\n": " ", "\r": " "})


class Output:
    """Where a command puts its answer.

    Args:
        as_json: ``--json`` was given. ``json`` prints only then; ``table`` and ``line`` print only otherwise, so a
            command calls both without asking.
        no_color: ``--no-color`` was given; ``NO_COLOR`` and ``TERM=dumb`` count as well.
    """

    def __init__(self, *, as_json: bool = False, no_color: bool = False) -> None:
        self.as_json = as_json
        self.no_color = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"

    def json(self, document: Mapping[str, Any]) -> None:
        """Print one document with ``schema_version``; times as ISO 8601, money and ids as text."""
        if self.as_json:
            text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False, default=_plain)
            print(text, flush=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows: drawn on a terminal, otherwise a heading and rows separated by tabs, never cut."""
        if self.as_json:
            return
        if sys.stdout.isatty():
            self._drawn(columns, rows)
            return
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_cell(value).translate(_FLAT) for value in row))
        sys.stdout.flush()

    def line(self, text: str) -> None:
        """Print one line of a plain answer."""
        if not self.as_json:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """Tell the person something that is not the answer, on stderr."""
        print(text, file=sys.stderr, flush=True)

    def _drawn(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        Console(no_color=self.no_color, highlight=False).print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(_plain(value)) if isinstance(value, datetime | date) else str(value)


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal | Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
