"""The wheel works in an empty folder, away from the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def zaia(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it alone into a new environment that borrows this one's libraries."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    (Path(site) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    return folder / "bin" / "zaia"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """An empty folder outside the checkout."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def run(*command: str, cwd: Path | None = None, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ZAIA_", "PYTHON"))}
    if home is not None:
        kept |= {"XDG_DATA_HOME": str(home), "HOME": str(home)}
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def test_the_wheel_holds_code_sql_migrations_and_data_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "zaia_cli"
    code = {
        f"zaia_cli/{path.relative_to(package)}"
        for suffix in ("py", "sql", "toml")
        for path in package.rglob(f"*.{suffix}")
    }
    assert code - names == set()
    for folder in ("prompts", "evals", "fixtures", "runbooks"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {f"zaia_cli/_data/{path.relative_to(ROOT)}" for path in files} - names == set()
    assert "zaia_cli/_data/zaia.toml" in names
    assert not [name for name in names if name.startswith(("tests/", "evals/", "prompts/", "fixtures/"))]


def test_help_works_and_the_code_is_the_installed_one(zaia: Path, elsewhere: Path) -> None:
    assert "Usage: zaia" in run(str(zaia), "--help", cwd=elsewhere, home=elsewhere).stdout
    where = run(str(zaia.parent / "python"), "-c", "import zaia_cli; print(zaia_cli.__file__)", cwd=elsewhere).stdout
    assert str(zaia.parents[1]) in where


def test_a_new_workspace_is_well(zaia: Path, elsewhere: Path, tmp_path: Path) -> None:
    run(str(zaia), "init", cwd=elsewhere, home=tmp_path / "home")
    document = json.loads(run(str(zaia), "doctor", "--json", cwd=elsewhere, home=tmp_path / "home").stdout)
    assert document["ok"] is True
    assert document["checks"][0]["detail"] == str(elsewhere / "zaia.toml")
    assert not (tmp_path / "home" / "zaia").exists()


def test_without_a_workspace_the_packaged_example_is_used(zaia: Path, elsewhere: Path, tmp_path: Path) -> None:
    document = json.loads(run(str(zaia), "doctor", "--json", cwd=elsewhere, home=tmp_path / "home").stdout)
    assert document["ok"] is True
    assert document["checks"][0]["detail"] == str(tmp_path / "home" / "zaia" / "workspace" / "zaia.toml")
    assert list(elsewhere.iterdir()) == []
