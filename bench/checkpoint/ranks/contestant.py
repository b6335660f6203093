"""What a way to save must be able to do, to be measured."""

import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from bench.checkpoint.case import Case
from bench.checkpoint.ranks.engine import State


class Contestant(Protocol):
    """One rank's side of it. A save's number is in the name of every blob (`folder_name`)."""

    isolated: bool  # training may go on while a save is on its way
    helpers: Sequence[int]  # processes whose work is its own

    def save(self, number: int) -> "Future[Any]":
        """Return when training may go on; the future is done once it is stored and committed."""

    def load(self, number: int) -> None:
        """Put the save with that number into the engine, from Blob alone."""

    def close(self) -> None:
        """End what it started."""


class Local:
    """A folder of this case on the local disk, emptied of a save once it is stored."""

    def __init__(self, case: Case, state: State) -> None:
        self.case, self.state = case, state
        self.root = Path(case.folder)

    def folder(self, number: int) -> Path:
        """Where the files of a save lie on their way."""
        path = self.root / folder_name(number)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def drop(self, number: int) -> None:
        """Nothing of it may be there when it is loaded."""
        shutil.rmtree(self.root / folder_name(number), ignore_errors=True)


def folder_name(number: int) -> str:
    """Of a save, on disk and in Blob."""
    return f"step-{number:08d}"
