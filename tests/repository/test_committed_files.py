"""Committed files work in any clone: they name no machine's folders and no package registry."""

import json
import re
from pathlib import Path

import pytest

from tests.repository.sources import ROOT, files, text

# Put together from pieces, so that this file does not name them either.
_FOLDERS = "|".join(["ro" + "ot", "ho" + r"me/(?!rekindle/)\w+", "Us" + r"ers/\w+", "wo" + "rk"])
MACHINE_PATH = re.compile(rf"(?<![\w.}}$])/(?:{_FOLDERS})/")
REGISTRY = re.compile("|".join(["regis" + r"try\.\w+\.\w", "pythonhos" + "ted", "np" + "mjs"]))
LARGEST = 500_000


def test_no_file_names_a_folder_of_some_machine() -> None:
    assert _lines_with(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert _lines_with(REGISTRY) == []


@pytest.mark.parametrize("folder", [ROOT, ROOT / "web"], ids=["azurite", "console"])
def test_a_lock_file_pins_by_hash_and_leaves_the_registry_to_the_user(folder: Path) -> None:
    packages = json.loads(text(folder / "package-lock.json"))["packages"]
    installed = {name: facts for name, facts in packages.items() if name}

    assert installed
    assert [name for name, facts in installed.items() if "resolved" in facts] == []
    assert [name for name, facts in installed.items() if "integrity" not in facts] == []


def test_no_file_is_so_large_that_it_should_not_be_committed() -> None:
    sizes = {str(file): (ROOT / file).stat().st_size for file in files()}

    assert {f: size for f, size in sizes.items() if size > LARGEST} == {}


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{file}:{number}: {line.strip()[:100]}"
        for file in files()
        for number, line in enumerate(text(file).splitlines(), start=1)
        if pattern.search(line)
    ]
