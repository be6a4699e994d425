"""Documents name every command, and only commands that exist."""

import re

from tests.repo.tree import ROOT, text_files
from zaia_cli.cli.app import COMMANDS

FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALLED = re.compile(r"^\s*(?:\$ )?zaia ([a-z][a-z-]*)", re.MULTILINE)


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in COMMANDS if f"zaia {name}" not in text] == []


def test_every_command_in_a_code_block_exists() -> None:
    called = {
        (str(path.relative_to(ROOT)), name)
        for path in text_files()
        if path.suffix == ".md"
        for block in FENCED.findall(path.read_text("utf-8"))
        for name in CALLED.findall(block)
    }
    assert {(file, name) for file, name in called if name not in COMMANDS} == set()
