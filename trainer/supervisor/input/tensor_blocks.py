"""Fetch the blocks of a checkpoint's tensors that this node's ranks read, each once.

On the world size that saved, ranks read their own files, so those are fetched at once. Other ranges
are requested once the engines are built (`WantedRanges` in trainer/rundir.py). Blocks come in the
order in which a rank reads them, and stay for the next generation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

from trainer.checkpoint.partial_tensors import BlockState, PartialTensors
from trainer.contract import FileEntry, Manifest
from trainer.process.disk_full import is_disk_full
from trainer.rundir import WantedRanges, tensors_name
from trainer.supervisor.blob.container import JobContainer
from trainer.supervisor.concurrency import SingleFlight, gather_or_cancel
from trainer.supervisor.input.fetch import fetch_block, path_inside, read_if_present
from trainer.supervisor.machine.memory_files import MemoryFolder

CONCURRENT_BLOCKS = 16  # blocks of one rank: the threads are shared with its neighbours'
RETRY_BLOCKS = 256  # blocks for which an outage may last as long as for a whole checkpoint
POLL_SECONDS = 0.05

Retry = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True)
class TensorBlock:
    """One block of a file."""

    file: str
    number: int


@dataclass(frozen=True)
class LocalCheckpoint:
    """A checkpoint that has its place on this node."""

    path: str  # in the job's container
    folder: Path
    manifest: Manifest

    def partial_file(self, name: str) -> PartialTensors:
        """Return a file of it that arrives in blocks."""
        return PartialTensors(path_inside(self.folder, name), self._files[name])

    @cached_property
    def _files(self) -> dict[str, FileEntry]:
        return {file.name: file for file in self.manifest.files}


def own_blocks(manifest: Manifest, world_size: int, rank: int) -> list[TensorBlock]:
    """Return the blocks that a rank reads for certain: its own, on the same world size."""
    if manifest.world_size != world_size:
        return []
    own = [f for f in manifest.files if f.name == tensors_name(rank)]
    return [TensorBlock(file.name, number) for file in own for number in range(len(file.blocks))]


def requested_blocks(requested: WantedRanges, manifest: Manifest) -> list[TensorBlock]:
    """Return the blocks of the ranges, in the order of first use.

    Raises ValueError for a range outside the files. Files without blocks have come whole.
    """
    files = {file.name: file for file in manifest.files}
    blocks: dict[TensorBlock, None] = {}
    for byte_range in requested.ranges:
        file = files.get(byte_range.file)
        if file is None:
            raise ValueError(
                f"{byte_range.file}: a rank wants it, but the checkpoint has no such file"
            )
        if not 0 <= byte_range.begin < byte_range.end <= file.size:
            raise ValueError(
                f"{byte_range.file}: a rank wants bytes {byte_range.begin} to {byte_range.end} "
                f"of {file.size}"
            )
        if file.blocks:
            numbers = range(
                byte_range.begin // file.block_size, -(-byte_range.end // file.block_size)
            )
            blocks |= dict.fromkeys(TensorBlock(file.name, number) for number in numbers)
    return list(blocks)


class TensorBlockFetcher:
    """Fetches blocks of any checkpoint; its folder is named by its manifest's hash."""

    def __init__(
        self, container: JobContainer, memory: MemoryFolder, spilled: Path, fetches: SingleFlight
    ) -> None:
        self._container = container
        self._memory = memory
        self._spill_folder = spilled
        self._fetches = fetches

    async def prepare_file(self, file: FileEntry, folder: Path) -> None:
        """Create the file for its blocks, or reuse a trainer's file on this node."""
        partial_tensors = PartialTensors(path_inside(folder, file.name), file)
        partial_tensors.unmark_lost()
        await self._fetches.run_once(
            partial_tensors.path, partial(self._create_or_reuse, partial_tensors)
        )

    async def fetch_blocks(
        self, checkpoint: LocalCheckpoint, blocks: Iterable[TensorBlock]
    ) -> None:
        """Fetch these blocks in this order, unless they are there."""
        queue = iter(blocks)

        async def work() -> None:
            for block in queue:
                await self._fetch_once(checkpoint, block)

        await gather_or_cancel(work() for _ in range(CONCURRENT_BLOCKS))

    async def serve_rank(
        self,
        checkpoint: LocalCheckpoint,
        world_size: int,
        rank: int,
        ranges_path: Path,
        retry: Retry,
    ) -> None:
        """Fetch all that one rank reads; ``ranges_path`` is the file of its wanted ranges."""
        await self._fetch_with_retries(
            checkpoint, own_blocks(checkpoint.manifest, world_size, rank), retry
        )
        ranges = await _wait_for_ranges(ranges_path)
        await self._fetch_with_retries(
            checkpoint, requested_blocks(ranges, checkpoint.manifest), retry
        )

    async def _fetch_with_retries(
        self, checkpoint: LocalCheckpoint, blocks: Iterable[TensorBlock], retry: Retry
    ) -> None:
        queue = iter(blocks)
        while batch := list(islice(queue, RETRY_BLOCKS)):
            await retry(partial(self.fetch_blocks, checkpoint, batch))

    async def _create_or_reuse(self, partial_tensors: PartialTensors) -> None:
        if partial_tensors.final_path.exists() or await asyncio.to_thread(
            self._memory.reuse_file, partial_tensors.entry, partial_tensors.final_path
        ):
            return
        try:
            partial_tensors.create()
        except OSError as e:
            if not is_disk_full(e):
                raise
            elsewhere = PartialTensors(
                self._spill_path(partial_tensors.final_path), partial_tensors.entry
            )
            elsewhere.create()
            partial_tensors.path.unlink(missing_ok=True)
            partial_tensors.path.symlink_to(elsewhere.path)

    async def _fetch_once(self, checkpoint: LocalCheckpoint, block: TensorBlock) -> None:
        partial_tensors = checkpoint.partial_file(block.file)
        path = partial_tensors.path
        name = path.with_name(f"{path.name}#{block.number}")  # never there
        await self._fetches.run_once(
            name, partial(self._fetch_block, checkpoint.path, partial_tensors, block.number)
        )

    async def _fetch_block(self, path: str, partial_tensors: PartialTensors, number: int) -> None:
        """Fetch a block into the node's memory; onto the disk when that is full."""
        if (
            partial_tensors.final_path.exists()
            or partial_tensors.block_state(number) is not BlockState.MISSING
        ):
            return
        try:
            await fetch_block(
                self._container, path, partial_tensors.entry, number, partial_tensors.path
            )
            partial_tensors.set_block_state(number, BlockState.IN_PLACE)
        except OSError as e:
            if not is_disk_full(e):
                raise
            await self._spill(path, partial_tensors, number)

    async def _spill(self, path: str, partial_tensors: PartialTensors, number: int) -> None:
        spill_path = self._spill_path(partial_tensors.spilled)
        partial_tensors.create_spilled(spill_path)
        await fetch_block(self._container, path, partial_tensors.entry, number, spill_path)
        partial_tensors.set_block_state(number, BlockState.SPILLED)

    def _spill_path(self, path: Path) -> Path:
        return self._spill_folder / path.parent.name / path.name


async def _wait_for_ranges(path: Path) -> WantedRanges:
    """Return the ranges that a rank requests, once it has."""
    while True:
        if data := await asyncio.to_thread(read_if_present, path):
            return WantedRanges.from_json(data)
        await asyncio.sleep(POLL_SECONDS)
