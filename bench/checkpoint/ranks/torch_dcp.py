"""Contestants with torch.distributed.checkpoint's async_save: to Blob directly, or via the disk.

Each rank's views have keys of their own, so that DCP does not deduplicate them across ranks.
Such a checkpoint cannot be loaded on another number of ranks.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from bench.checkpoint.case import CheckpointCase
from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.contestant import Local, Uploading, folder_name
from bench.checkpoint.ranks.engine import State


class DcpFsspec(Local):
    """Saves to Blob directly with fsspec and adlfs."""

    isolated = True
    helpers: Sequence[int] = ()

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._group = dist.new_group(backend="gloo")  # runs beside training's collectives
        parts = urlsplit(case.url)
        self._container = parts.path.rpartition("/")[2]
        endpoint = f"{parts.scheme}://{parts.netloc}{parts.path.rpartition('/')[0]}"
        self._access = {
            "account_name": "bench",
            "connection_string": f"BlobEndpoint={endpoint};SharedAccessSignature={parts.query}",
        }

    def save(self, number: int) -> "Future[Any]":
        """Start a save; blocks for a copy in host memory."""
        writer = FsspecWriter(self._url(number), **self._access)
        return _async_save(self.state, writer, self._group)

    def load(self, number: int) -> None:
        """Load a save into the engine's tensors in place."""
        reader = FsspecReader(self._url(number), **self._access)
        dcp.load(_named_views(self.state), storage_reader=reader, process_group=self._group)

    def close(self) -> None:
        """Do nothing: there are no threads or connections to close."""

    def _url(self, number: int) -> str:
        return f"abfs://{self._container}/{folder_name(number)}"


class DcpDisk(Uploading):
    """Saves to disk and uploads with azure-storage-blob, where adlfs is not installed."""

    def __init__(self, case: CheckpointCase, state: State) -> None:
        super().__init__(case, state)
        self._group = dist.new_group(backend="gloo")

    def save(self, number: int) -> "Future[None]":
        """Start a save; blocks for a copy in host memory."""
        writer = dcp.FileSystemWriter(self.folder(number))
        written = _async_save(self.state, writer, self._group)
        return self._thread.submit(self._upload_written, number, written)

    def load(self, number: int) -> None:
        """Download a share of the files on each rank, then read all of them in place."""
        folder = self.folder(number)
        names = sdk.listed(self._container, folder.name)
        sdk.download(self._container, folder, names[self.state.rank :: self.state.ranks])
        dist.barrier()
        reader = dcp.FileSystemReader(folder)
        dcp.load(_named_views(self.state), storage_reader=reader, process_group=self._group)
        dist.barrier()
        self.drop(number)

    def _upload_written(self, number: int, written: "Future[Any]") -> None:
        written.result()
        names = [f"__{self.state.rank}_0.distcp", *([".metadata"] if self.state.rank == 0 else [])]
        self._upload(self.folder(number), names)


def _async_save(state: State, writer: Any, group: Any) -> "Future[Any]":  # noqa: ANN401
    future = dcp.async_save(_named_views(state), storage_writer=writer, process_group=group)
    assert isinstance(future, Future)  # async_save with threads returns a Future
    return future


def _named_views(state: State) -> dict[str, torch.Tensor]:
    return {f"{state.rank}/{name}": view for name, view in state.views()}
