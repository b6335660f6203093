"""docs/where-is.md names files and definitions that exist."""

import ast
import re
from pathlib import Path

from tests.repository.sources import files, text

PAGE = Path("docs/where-is.md")
ROW = re.compile(r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def test_every_concept_names_a_file_and_a_definition_in_it() -> None:
    rows = ROW.findall(text(PAGE))
    known = {file: _definitions(Path(file)) for _, file, _ in rows if Path(file) in files()}
    wrong = [row for row in rows if row[2] not in known.get(row[1], set())]

    assert len(rows) >= 90
    assert wrong == []


def test_no_concept_is_listed_twice() -> None:
    concepts = [concept for concept, _, _ in ROW.findall(text(PAGE))]

    assert sorted(concepts) == sorted(set(concepts))


def _definitions(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(text(file))) if isinstance(node, kinds)}
