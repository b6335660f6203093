"""Contestant "torch_save": torch.save to disk in the loop, then an upload in a thread."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from bench.checkpoint.case import Case
from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.contestant import Local
from bench.checkpoint.ranks.engine import State


class TorchSave(Local):
    """One file for each rank, uploaded with azure-storage-blob."""

    isolated = True
    helpers: Sequence[int] = ()

    def __init__(self, case: Case, state: State) -> None:
        super().__init__(case, state)
        self._container = sdk.client(case.url)
        self._thread = ThreadPoolExecutor(1)
        self._name = f"rank-{state.rank:05d}.pt"

    def save(self, number: int) -> "Future[None]":
        """Start a save; blocks until the file is written."""
        torch.save(dict(self.state.views()), self.folder(number) / self._name)
        return self._thread.submit(self._upload, number)

    def load(self, number: int) -> None:
        """Download the file and copy its tensors from the memory-mapped file."""
        folder = self.folder(number)
        sdk.download(self._container, folder, [self._name])
        there = torch.load(folder / self._name, weights_only=True, mmap=True)
        for name, view in self.state.views():
            view.copy_(there[name])
        (folder / self._name).unlink()

    def close(self) -> None:
        """Stop the thread and close the connections."""
        self._thread.shutdown()
        self._container.close()

    def _upload(self, number: int) -> None:
        folder = self.folder(number)
        sdk.upload(self._container, folder, [self._name])
        (folder / self._name).unlink()
