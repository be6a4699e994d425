"""``dev.py`` and the lock: two commands on a machine that has only Python."""

import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from tests.repo.tree import ROOT


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script as a module, its environment in a folder of its own, and programs recorded instead of run."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "STAMP", str(tmp_path / "stamp"))
    monkeypatch.setattr(module, "PYTHON", str(tmp_path / "python"))
    ran: list[tuple[str, ...]] = []

    def record(command: list[str], cwd: str | None = None) -> int:
        ran.append(tuple(command))
        Path(module.PYTHON).touch()
        return 0

    monkeypatch.setattr(module.subprocess, "call", record)
    module.ran = ran  # type: ignore[attr-defined]
    return module


def test_it_parses_on_old_pythons_and_imports_only_the_standard_library() -> None:
    tree = ast.parse((ROOT / "dev.py").read_text("utf-8"), feature_version=(3, 7))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names <= set(sys.stdlib_module_names)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_an_old_python_is_told_what_is_needed(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev.sys, "version_info", (3, 9, 1))
    assert dev.main(["test"]) == 2
    assert "needs Python 3.11 or later; this is 3.9" in capsys.readouterr().err
    assert dev.ran == []


def test_it_installs_from_the_lock_with_hashes_once(dev: ModuleType) -> None:
    dev.main(["demo"])
    first = list(dev.ran)
    dev.ran.clear()
    dev.main(["demo"])
    assert any("--require-hashes" in command and str(ROOT / "requirements.lock") in command for command in first)
    assert any("--no-deps" in command for command in first)
    assert [command[1:] for command in dev.ran] == [("demo",)]


def test_a_changed_lock_installs_again(dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dev.main(["demo"])
    other = tmp_path / "requirements.lock"
    other.write_text("# other\n", encoding="utf-8")
    monkeypatch.setattr(dev, "LOCK", str(other))
    dev.ran.clear()
    dev.main(["demo"])
    assert len(dev.ran) > 1


def test_a_failing_program_ends_it_with_the_same_code(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev.subprocess, "call", lambda command, cwd=None: 3)
    with pytest.raises(SystemExit) as caught:
        dev.main(["lint"])
    assert caught.value.code == 3


def test_without_a_command_it_lists_them(dev: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main([]) == 0
    assert dev.main(["nonsense"]) == 2
    assert capsys.readouterr().out.count("demo") == 2


def test_the_lock_satisfies_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE))
    wanted = [Requirement(each) for each in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    assert wanted
    assert [str(each) for each in wanted if locked.get(each.name.lower(), "0") not in each.specifier] == []
