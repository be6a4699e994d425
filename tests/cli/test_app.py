"""The root command: what it imports, what every command accepts and shows."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from zaia_cli.cli.app import COMMANDS
from zaia_cli.cli.command import EXIT_CODES, Options, command

ROOT = Path(__file__).parents[2]
HEAVY = ("litellm", "pandas", "sqlalchemy", "alembic", "psycopg", "aiohttp", "starlette", "jinja2")
SHARED = ("--json", "--workspace", "--database-url", "--no-color", "--verbose")


def leaves() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, entry in COMMANDS.items():
        module, attribute = entry.target.split(":")
        target = getattr(importlib.import_module(f"zaia_cli.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            found += [
                (name, each.name or each.callback.__name__) for each in target.registered_commands if each.callback
            ]
        else:
            found.append((name,))
    return found


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom zaia_cli.cli.app import app\n"
        "result = CliRunner().invoke(app, ['--help'])\nassert result.exit_code == 0, result.output\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", leaves(), ids=" ".join)
def test_every_command_shows_two_examples_its_exit_codes_and_the_shared_options(
    path: tuple[str, ...], zaia: Any
) -> None:
    shown = zaia(*path, "--help")
    assert shown.exit_code == 0
    examples = shown.stdout.partition("Examples:")[2].partition("Exit codes:")[0]
    assert examples.count("zaia " + " ".join(path)) >= 2
    codes = shown.stdout.partition("Exit codes:")[2]
    assert "0  ok" in codes
    assert "130  interrupted" in codes
    for option in SHARED:
        assert option in shown.stdout


def test_the_summary_of_each_command_is_the_first_line_of_its_help() -> None:
    for entry in COMMANDS.values():
        module, attribute = entry.target.split(":")
        target = getattr(importlib.import_module(f"zaia_cli.cli.{module}"), attribute)
        told = target.info.help if isinstance(target, typer.Typer) else (inspect.getdoc(target) or "").splitlines()[0]
        assert told == entry.summary


def test_a_misspelled_command_is_a_usage_error_with_the_nearest_one(zaia: Any) -> None:
    done = zaia("doctr")
    assert done.exit_code == 2
    assert "Did you mean 'doctor'?" in done.stderr
    assert done.stdout == ""


def test_a_usage_error_is_a_document_with_json(zaia: Any) -> None:
    done = zaia("doctor", "--wrong", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["kind"] == "usage"
    assert "--wrong" in json.loads(done.stdout)["error"]["message"]


def test_words_after_two_dashes_are_not_options(zaia: Any) -> None:
    done = zaia("doctor", "--", "--json")
    assert done.exit_code == 2
    assert done.stdout == ""


def test_the_module_runs_like_the_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zaia_cli", "--help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=50
    )
    assert "Usage: zaia " in done.stdout


def test_the_shared_options_reach_an_async_body() -> None:
    seen: list[tuple[Options, int]] = []

    @command(examples=("zaia x", "zaia x --json"))
    async def body(options: Options, number: int = 1) -> None:
        """Do it."""
        seen.append((options, number))

    body(number=3, json=True, workspace=None, database_url=None, no_color=False, verbose=False)
    assert seen == [(Options(json=True), 3)]
    assert list(EXIT_CODES) == [0, 1, 2, 3, 4, 5, 6, 7, 130]
