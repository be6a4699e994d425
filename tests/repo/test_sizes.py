"""The tail is capped: short modules, short functions."""

import ast

from tests.repo.tree import ROOT, parsed, python_files

MODULE_LINES = 400
FUNCTION_LINES = 60


def test_every_module_is_under_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert lengths
    assert {name: count for name, count in lengths.items() if count >= MODULE_LINES} == {}


def test_every_function_is_under_60_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in python_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 >= FUNCTION_LINES
    }
    assert long == {}
