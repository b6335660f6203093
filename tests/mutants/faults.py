"""The faults that `make mutants` plants: one TOML file for each part of Rekindle."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One textual change to a file, and the test that must fail because of it."""

    fault: str  # what the changed program does wrong
    file: str
    was: str
    becomes: str
    caught_by: str  # a pytest id


def read_faults() -> tuple[Fault, ...]:
    """Return every fault, in the order of the files and of their rows."""
    files = (tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml")))
    return tuple(Fault(**row) for file in files for row in file["fault"])


def chosen(faults: Iterable[Fault], only: str) -> list[Fault]:
    """Return the faults that have ``only`` in their name, their file or their test."""
    return [f for f in faults if only.lower() in f"{f.fault} {f.file} {f.caught_by}".lower()]


def planted(text: str, fault: Fault) -> str:
    """Return a file's text with the fault in it; ValueError unless its place is there once."""
    if (count := text.count(fault.was)) != 1:
        raise ValueError(
            f"{fault.fault}: {fault.file} has {fault.was!r} {count} times, not once. "
            "Plant the fault anew: change `was` and `becomes` in tests/mutants/*.toml."
        )
    return text.replace(fault.was, fault.becomes)
