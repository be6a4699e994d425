"""``zaia init``."""

import json
from pathlib import Path
from typing import Any

from zaia_cli.cli.workspace import data_dir


def test_a_new_workspace_is_made_and_its_path_printed(zaia: Any, tmp_path: Path) -> None:
    done = zaia("init", tmp_path / "new")
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'new'}\n"
    assert (tmp_path / "new" / "prompts" / "atendimento" / "v1.md").is_file()


def test_a_new_workspace_holds_every_runbook(zaia: Any, tmp_path: Path) -> None:
    """They are needed where the engine runs, and that is often not where its source is."""
    assert zaia("init", tmp_path / "new").exit_code == 0
    packed = {file.name: file.read_bytes() for file in (data_dir() / "runbooks").glob("*.md")}
    copied = {file.name: file.read_bytes() for file in (tmp_path / "new" / "runbooks").glob("*.md")}
    assert "unknown-reply.md" in packed
    assert copied == packed


def test_the_current_folder_is_the_default(zaia: Any) -> None:
    done = zaia("init", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["workspace"] == str(Path.cwd())
    assert Path("zaia.toml").is_file()
    assert "zaia.toml" in json.loads(done.stdout)["files"]


def test_a_second_time_is_refused(zaia: Any, workspace: Path) -> None:
    done = zaia("init", workspace, "--json")
    assert done.exit_code == 6
    assert json.loads(done.stdout)["error"]["kind"] == "refused"
