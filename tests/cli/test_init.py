"""``zaia init``."""

import json
from pathlib import Path
from typing import Any


def test_a_new_workspace_is_made_and_its_path_printed(zaia: Any, tmp_path: Path) -> None:
    done = zaia("init", tmp_path / "new")
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'new'}\n"
    assert (tmp_path / "new" / "prompts" / "atendimento" / "v1.md").is_file()


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
