"""No file knows the machine on which it was written."""

import re
import tempfile
from pathlib import Path

from tests.repo.tree import ROOT, text_files

LOCK = ROOT / "requirements.lock"


def machine_paths() -> re.Pattern[str]:
    """Match folders of people ("someone" is nobody), of this checkout and of the one who runs this."""
    here = {str(ROOT), str(ROOT.parent), str(Path.home())} - {"/", tempfile.gettempdir()}
    people = [rf"/{folder}/(?!someone/)[A-Za-z0-9._-]+" for folder in ("home", "Users")]
    return re.compile(rf"(?<![\w./-])(?:{'|'.join([*people, *map(re.escape, sorted(here))])})/")


def test_no_file_holds_a_path_of_a_machine() -> None:
    pattern = machine_paths()
    found = {str(path.relative_to(ROOT)) for path in text_files() if pattern.search(path.read_text("utf-8"))}
    assert found == set()


def test_the_lock_names_no_index_and_every_package_has_hashes() -> None:
    text = LOCK.read_text("utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    blocks = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(blocks) > 50
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
