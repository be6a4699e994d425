"""A module that says where it is tested names files that are there."""

from __future__ import annotations

import ast
import re

from tests.repo.tree import ROOT, parsed, python_files

NAMED = re.compile(r"``((?:tests/)?[\w/]*test_\w+\.py|tests/[\w/]+)``")


def test_the_tests_that_docstrings_name_exist() -> None:
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files()
        for name in NAMED.findall(ast.get_docstring(parsed(path)) or "")
        if not ((ROOT / name).exists() if name.startswith("tests/") else name in known)
    }
    assert missing == set()
