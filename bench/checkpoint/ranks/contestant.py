"""Interface of a contestant: one way to save and load the state."""

import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from bench.checkpoint.case import CheckpointCase
from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.engine import State


class Contestant(Protocol):
    """One rank's side of a way to save; every blob name contains the save's `folder_name`."""

    isolated: bool  # training may go on during a save
    helpers: Sequence[int]  # helper processes, whose CPU and memory count too

    def save(self, number: int) -> "Future[Any]":
        """Start a save and return when training may go on.

        The future is done when the save is stored and committed.
        """

    def load(self, number: int) -> None:
        """Load the save with that number into the engine, from Blob only."""

    def close(self) -> None:
        """Stop the threads and processes that it started."""


class Local:
    """A contestant's folder on the local disk, which holds a save until it is stored."""

    def __init__(self, case: CheckpointCase, state: State) -> None:
        self.case, self.state = case, state
        self.root = Path(case.folder)

    def folder(self, number: int) -> Path:
        """Return the local folder of a save, and create it if it is missing."""
        path = self.root / folder_name(number)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def drop(self, number: int) -> None:
        """Delete the local files of a save, so that a load cannot read them."""
        shutil.rmtree(self.root / folder_name(number), ignore_errors=True)


class Uploading(Local):
    """A contestant that writes to the disk, and uploads in a thread with azure-storage-blob."""

    isolated = True
    helpers: Sequence[int] = ()

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._container = sdk.client(case.url)
        self._thread = ThreadPoolExecutor(1)

    def close(self) -> None:
        """Stop the thread and close the connections."""
        self._thread.shutdown()
        self._container.close()

    def _upload(self, folder: Path, names: Sequence[str]) -> None:
        sdk.upload(self._container, folder, names)
        for name in names:
            (folder / name).unlink()


def folder_name(number: int) -> str:
    """Return the folder name of a save, on disk and in Blob."""
    return f"step-{number:08d}"
