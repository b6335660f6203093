"""Host memory that a rank's saves are copied into, and that uploads read from.

A slot is a file in memory, laid out as the safetensors file that goes to Blob. Its header is
written once; each save refills the rest. The supervisor maps the same file: a save is copied once,
is not written to a disk, and survives a crash of the trainer. With room for two slots, one is
always free for the save of a stop, even during an upload.
"""

import logging
import mmap
import os
from pathlib import Path

import torch

from trainer.checkpoint.checksum import describe_blocks
from trainer.checkpoint.safetensors_file import build_header
from trainer.process.disk_full import is_disk_full
from trainer.rundir import RunDir, SavedFile, tensors_name

LETTERS = "ab"  # two slots
log = logging.getLogger(__name__)


class SaveSlot:
    """One file in memory, and the save that it holds."""

    def __init__(self, path: Path, beginning: bytes, numel: int, *, pinned: bool) -> None:
        self.path = path
        self._size = len(beginning) + 4 * numel
        self._map = _map_new_file(path, self._size)
        self._map[: len(beginning)] = beginning
        # An empty buffer cannot be shared: a rank may own nothing.
        self.flat = (
            torch.frombuffer(self._map, dtype=torch.float32, offset=len(beginning))
            if numel
            else torch.empty(0)
        )
        self.flat.zero_()  # the first touch of a page costs more than a copy into it
        if pinned and numel:
            _pin(self._map)
        self._save: Path | None = None

    @property
    def is_free(self) -> bool:
        """Whether the slot's save has left the outbox, or there was none."""
        return self._save is None or not self._save.is_dir()  # given up, it is a file

    def link_into(self, folder: Path, rank: int) -> SavedFile:
        """Link the slot's content into the save's outbox folder; return its checksums."""
        link = folder / tensors_name(rank)
        link.unlink(missing_ok=True)
        link.symlink_to(self.path)
        self._save = folder
        return describe_blocks(memoryview(self._map), link.name)


def make_slots(rundir: RunDir, rank: int, sizes: dict[str, int], *, pinned: bool) -> list[SaveSlot]:
    """Make as many slots, at most two, as memory has room for; else on the disk.

    Args:
        sizes: Elements of each one-dimensional fp32 tensor, by name.

    Raises OSError when memory and disk are full.
    """
    beginning, numel = build_header(sizes), sum(sizes.values())
    full = OSError()
    for folder in (rundir.memory, rundir.slots):
        folder.mkdir(parents=True, exist_ok=True)
        slots: list[SaveSlot] = []
        try:
            for letter in LETTERS:
                path = folder / f"rank-{rank:05d}.{letter}"
                slots.append(SaveSlot(path, beginning, numel, pinned=pinned))
        except OSError as e:
            if not is_disk_full(e):
                raise
            log.warning("%s has no room for two saves of rank %d", folder.name, rank)
            full = e
        if slots:
            return slots
    raise full


def _map_new_file(path: Path, size: int) -> mmap.mmap:
    """Create and map a file; reserve its space at once, or a later write kills the process."""
    path.unlink(missing_ok=True)
    with path.open("w+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            path.unlink()
            raise
        return mmap.mmap(file.fileno(), size)


def _pin(mapped: mmap.mmap) -> None:
    """Pin the memory for direct copies by the GPU; without it saves block longer."""
    address = torch.frombuffer(mapped, dtype=torch.uint8).data_ptr()
    refused = int(torch.cuda.cudart().cudaHostRegister(address, len(mapped), 0))
    if refused:
        log.warning(
            "a save's memory could not be pinned (CUDA error %d): saving blocks longer", refused
        )
