"""From an exception to an exit code, a sentence and, with ``--json``, a document.

Idea: one place decides; it is called from the root group's ``invoke``, which test runners pass through too. Invariant:
every failure exits non-zero, and with ``--json`` it is ``{"error": {"kind", "message", "hint"}}`` on stdout. Tested in
``tests/cli/test_errors.py``.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass

import typer
from pydantic import ValidationError

from zaia_cli.cli.output import SCHEMA_VERSION
from zaia_cli.core.errors import ZaiaError

__all__ = ["Failure", "failure_of", "report"]

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Failure:
    """What a command tells when it fails."""

    kind: str
    message: str
    exit_code: int
    hint: str | None = None
    is_expected: bool = True


def failure_of(error: BaseException) -> Failure:
    """Classify an exception; one inside a group of exceptions counts as itself."""
    while isinstance(error, BaseExceptionGroup):
        error = next((inner for inner in error.exceptions if isinstance(inner, ZaiaError)), error.exceptions[0])
    if isinstance(error, ZaiaError):
        return Failure(error.code, error.message, error.exit_code, error.hint)
    if isinstance(error, ValidationError):
        return Failure("configuration", str(error), 2, "check the configuration: zaia doctor")
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f"try: {context.command_path} --help" if context is not None else None
        return Failure("usage", error.format_message(), 2, hint)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", "interrupted", _INTERRUPTED)
    message = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return Failure("internal", message, 1, "run with -v for the traceback", is_expected=False)


def report(error: BaseException, *, as_json: bool, verbose: bool) -> int:
    """Tell the person and, with ``as_json``, the program that reads stdout; return the exit code."""
    failure = failure_of(error)
    if as_json:
        told = {"kind": failure.kind, "message": failure.message, "hint": failure.hint}
        print(json.dumps({"schema_version": SCHEMA_VERSION, "error": told}, ensure_ascii=False), flush=True)
    if verbose and not failure.is_expected:
        traceback.print_exception(error, file=sys.stderr)
    print(f"error: {failure.message}", file=sys.stderr)
    if failure.hint and not (verbose and not failure.is_expected):
        print(f"hint: {failure.hint}", file=sys.stderr)
    return failure.exit_code
