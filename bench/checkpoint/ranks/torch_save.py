"""Contestant "torch_save": torch.save to disk in the loop, then an upload in a thread."""

from concurrent.futures import Future

import torch

from bench.checkpoint.case import CheckpointCase
from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.contestant import Uploading
from bench.checkpoint.ranks.engine import State


class TorchSave(Uploading):
    """One file for each rank, uploaded with azure-storage-blob."""

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._name = f"rank-{state.rank:05d}.pt"

    def save(self, number: int) -> "Future[None]":
        """Start a save; blocks until the file is written."""
        folder = self.folder(number)
        torch.save(dict(self.state.views()), folder / self._name)
        return self._thread.submit(self._upload, folder, [self._name])

    def load(self, number: int) -> None:
        """Download the file and copy its tensors from the memory-mapped file."""
        folder = self.folder(number)
        sdk.download(self._container, folder, [self._name])
        tensors = torch.load(folder / self._name, weights_only=True, mmap=True)
        for name, view in self.state.views():
            view.copy_(tensors[name])
        (folder / self._name).unlink()
