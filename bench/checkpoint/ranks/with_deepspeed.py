"""Contestant "deepspeed": save_checkpoint to disk in the loop, then an upload in a thread.

It also saves the 16-bit weights, so it moves more bytes; throughput counts the state only.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import torch.distributed as dist

from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.contestant import Uploading, folder_name


class DeepSpeedSave(Uploading):
    """DeepSpeed's checkpoint; each rank uploads and downloads a share of the files."""

    def save(self, number: int) -> "Future[None]":
        """Start a save; blocks until the files are written.

        It omits DeepSpeed's `latest` file, which would name a save that is not uploaded yet.
        """
        tag = folder_name(number)
        self.state.engine.save_checkpoint(str(self.root), tag=tag, save_latest=False)
        dist.barrier()
        folder = self.folder(number)
        names = self._share(sorted(str(p.relative_to(folder)) for p in _files(folder)))
        return self._thread.submit(self._upload, folder, names)

    def load(self, number: int) -> None:
        """Download a share of the files on each rank, then run DeepSpeed's own load."""
        folder = self.folder(number)
        names = self._share(sdk.listed(self._container, folder.name))
        sdk.download(self._container, folder, names)
        dist.barrier()
        self.state.engine.load_checkpoint(str(self.root), tag=folder.name)
        dist.barrier()
        self.drop(number)

    def _share(self, names: Sequence[str]) -> Sequence[str]:
        return names[self.state.rank :: self.state.ranks]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
