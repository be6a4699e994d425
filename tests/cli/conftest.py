"""Commands run in an empty folder, without this machine's settings."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from zaia_cli.cli.app import app
from zaia_cli.cli.workspace import make_workspace

Zaia = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("ZAIA_") and not name.startswith("ZAIA_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user data"))
    monkeypatch.setenv("COLUMNS", "200")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)


@pytest.fixture
def zaia() -> Zaia:
    """Run ``zaia`` with arguments; the answer has exit_code, stdout and stderr."""
    runner = CliRunner()
    return lambda *arguments, **options: runner.invoke(app, [str(each) for each in arguments], **options)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A fresh workspace, whose embedded database nobody has started."""
    make_workspace(tmp_path / "workspace")
    return tmp_path / "workspace"
