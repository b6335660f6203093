"""Where in the service something is written outside: found in its text, to see what no life met."""

import ast
from collections.abc import Iterator
from pathlib import Path

import service
from tests.chaos.seams import WRITES

FOLDERS = ("api", "operations", "reconciler")
CLOUD = frozenset({"create", "refill", "delete"})


def all_places() -> set[str]:
    """Every place that has an effect, named as a point is: "create reconciler/attempts.py _create".

    Transactions that only read are among them: which one writes is known when it runs.
    """
    root = Path(service.__file__).parent
    found: set[str] = set()
    for folder in FOLDERS:
        for file in sorted((root / folder).glob("*.py")):
            found.update(_of(ast.parse(file.read_text()), file.relative_to(root).as_posix()))
    return found


def _of(tree: ast.AST, file: str) -> Iterator[str]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            seam, verb = _last_name(node.func.value), node.func.attr
            if seam == "engine" and verb == "begin":
                yield f"commit {file} {function.name}"
            if (seam == "cloud" and verb in CLOUD) or (seam == "store" and verb in WRITES):
                yield f"{verb} {file} {function.name}"


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):  # self._cloud(row).create(...)
        return _last_name(node.func).lstrip("_")
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
