"""``__all__`` says exactly what a module offers, and a module says what it is for."""

import ast
from pathlib import Path

from tests.repo.tree import ROOT, parsed, shipped_files

UNCLEAR = {"utils", "helpers", "common", "manager", "base", "misc"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def defined(tree: ast.Module) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}


def known(tree: ast.Module) -> set[str]:
    names = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_all_holds_every_public_class_and_function_and_nothing_unknown() -> None:
    wrong: dict[str, set[str]] = {}
    for path in shipped_files():
        tree = parsed(path)
        listed = exported(tree)
        odd = (defined(tree) - set(listed)) | (set(listed) - known(tree))
        odd |= {name for name in listed if listed.count(name) > 1}
        if odd:
            wrong[name_of(path)] = odd
    assert wrong == {}


def test_every_module_has_a_docstring_and_a_clear_name() -> None:
    assert [name_of(path) for path in shipped_files() if not ast.get_docstring(parsed(path))] == []
    assert [name_of(path) for path in shipped_files() if set(path.stem.split("_")) & UNCLEAR] == []


def test_every_file_that_a_docstring_names_as_its_test_exists() -> None:
    missing = {
        name_of(path): name
        for path in shipped_files()
        for word in (ast.get_docstring(parsed(path)) or "").split()
        if word.startswith("``tests/") and not (ROOT / (name := word.strip("`.,;:()"))).exists()
    }
    assert missing == {}
