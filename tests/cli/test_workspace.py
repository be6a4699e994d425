"""Which workspace a command uses."""

from pathlib import Path

import pytest

from zaia_cli.cli.workspace import data_dir, find_workspace, make_workspace
from zaia_cli.core.errors import NotFoundError, RefusedError

ROOT = Path(__file__).parents[2]


def test_the_option_wins_over_the_parent(workspace: Path, tmp_path: Path) -> None:
    make_workspace(tmp_path / "other")
    found = find_workspace(tmp_path / "other", start=workspace)
    assert (found.root, found.found_by) == (tmp_path / "other", "option")


def test_the_nearest_parent_is_found(workspace: Path) -> None:
    below = workspace / "prompts" / "atendimento"
    found = find_workspace(None, start=below)
    assert (found.root, found.found_by) == (workspace, "parent")


def test_a_folder_without_a_configuration_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"has no zaia\.toml") as caught:
        find_workspace(tmp_path, start=tmp_path)
    assert "zaia init" in (caught.value.hint or "")


def test_elsewhere_the_packaged_example_is_copied_once_into_the_user_data_folder(tmp_path: Path) -> None:
    found = find_workspace(None, start=tmp_path)
    assert found.found_by == "example"
    assert found.root == tmp_path / "user data" / "zaia" / "workspace"
    found.config_file.write_text("# mine\n", encoding="utf-8")
    assert find_workspace(None, start=tmp_path) == found
    assert found.config_file.read_text("utf-8") == "# mine\n"
    assert [path.name for path in found.root.parent.iterdir()] == ["workspace"]


def test_a_copy_has_every_packaged_file_and_ignores_its_state(workspace: Path) -> None:
    for part in ("prompts", "evals", "fixtures"):
        shipped = {path.relative_to(ROOT) for path in (ROOT / part).rglob("*") if path.is_file()}
        copied = {path.relative_to(workspace) for path in (workspace / part).rglob("*") if path.is_file()}
        assert copied == {path for path in shipped if not any(name.startswith((".", "__")) for name in path.parts)}
    assert ".zaia/" in (workspace / ".gitignore").read_text("utf-8")
    assert data_dir() == ROOT


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "prompts" / "atendimento").mkdir(parents=True)
    (tmp_path / "prompts" / "atendimento" / "v1.md").write_text("mine", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"already has prompts/atendimento/v1\.md; nothing was changed"):
        make_workspace(tmp_path)
    assert not (tmp_path / "zaia.toml").exists()


def test_an_own_gitignore_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n", encoding="utf-8")
    make_workspace(tmp_path)
    assert (tmp_path / ".gitignore").read_text("utf-8") == "mine\n"
