"""No file knows the machine on which it was written."""

import re
from pathlib import Path

from tests.repo.tree import ROOT, text_files

LOCK = ROOT / "requirements.lock"


def test_no_file_holds_a_path_of_a_machine() -> None:
    homes = ("home", "Users")
    pattern = re.compile("|".join([*(rf"/{home}/[A-Za-z0-9._-]+/" for home in homes), re.escape(f"{ROOT}/")]))
    own = f"{Path.home()}/"
    found = {
        str(path.relative_to(ROOT))
        for path in text_files()
        for text in [path.read_text("utf-8")]
        if pattern.search(text) or (own.count("/") > 1 and own in text)
    }
    assert found == set()


def test_the_lock_names_no_index_and_every_package_has_hashes() -> None:
    text = LOCK.read_text("utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    blocks = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(blocks) > 50
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
