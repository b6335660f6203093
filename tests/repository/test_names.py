"""Identifiers use the words of docs/glossary.md, and no file has an unspecific name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repository.sources import files, python_files, text

NAMELESS = {"common", "handler", "handlers", "helper", "helpers", "manager", "managers"}
NAMELESS |= {"misc", "util", "utils"}

# The "not" words of the glossary that no identifier needs for anything else.
NOT_WORDS = {
    "blacklist": "unavailable",
    "blacklisted": "unavailable",
    "flavor": "offering",
    "preempted": "evicted",
    "preemption": "eviction",
    "stockout": "insufficient capacity",
    "zombie": "orphan",
}
# Words that only earlier authors understood, and the usual ones.
NOT_WORDS |= {
    "crowd": "batch",
    "drought": "outage",
    "droughts": "outages",
    "eyes": "observer",
    "knock": "probe",
    "noplace": "rate limited",
    "outlay": "cost",
    "pasts": "capacity history",
    "polite": "rate limit",
    "pulse": "liveness",
    "surroundings": "context",
    "weather": "capacity",
}
# The same object on the wire may have the same name: the API's schemas beside the domain's classes.
WIRE = ("service/api/schemas/", "rekindle/responses.py")


def test_no_module_is_called_utils_or_the_like() -> None:
    nameless = [f for f in files() if NAMELESS & {f.stem, *f.parent.parts}]

    assert nameless == []


def test_identifiers_use_the_words_of_the_glossary() -> None:
    wrong = {
        f"{file}: {name}": f"say {NOT_WORDS[word]}"
        for file in python_files()
        if file.parts[0] != "emulator"  # it speaks Azure's words
        for name in _identifiers(file)
        for word in _words(name)
        if word in NOT_WORDS
    }

    assert wrong == {}


def test_a_class_name_is_defined_in_one_module() -> None:
    modules: dict[str, list[str]] = {}
    for file in python_files():
        if file.parts[0] != "tests" and not str(file).startswith(WIRE):
            for node in ast.walk(ast.parse(text(file))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules.setdefault(node.name, []).append(str(file))

    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def _identifiers(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(text(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _words(name: str) -> list[str]:
    """Return the words of a snake_case or CamelCase name, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
