"""Named SQL: every statement has a caller, every call has a statement."""

import ast
import re

from tests.repo.tree import parsed, shipped_files
from zaia_cli.store.statements import statements

NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


def literals() -> set[str]:
    return {
        node.value
        for path in shipped_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }


def test_every_statement_is_used() -> None:
    assert sorted(set(statements()) - literals()) == []


def test_every_name_with_the_stem_of_a_file_is_a_statement() -> None:
    stems = {name.partition(".")[0] for name in statements()}
    called = {
        node.args[0].value
        for path in shipped_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and node.args[0].value.partition(".")[0] in stems
    }
    assert sorted(called - set(statements())) == []
