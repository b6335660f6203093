"""Host memory that a rank's saves are copied into, and that Blob is served from.

A slot is a file in memory, laid out as the safetensors file that goes to Blob: the header is
written once, the rest is filled anew for every save. The supervisor maps the same file, so a save
is copied once and written to no disk, and it outlives a trainer that crashes. Two slots where the
memory has room: one is always free for the save of a stop, even while another is on its way.
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
    """One file, and what lies in it."""

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
    def free(self) -> bool:
        """Whether the save in it has left the outbox, or was never one."""
        return self._save is None or not self._save.is_dir()  # given up, it is a file

    def hand_over(self, folder: Path, rank: int) -> SavedFile:
        """Have the save of this outbox folder be what lies here now."""
        link = folder / tensors_name(rank)
        link.unlink(missing_ok=True)
        link.symlink_to(self.path)
        self._save = folder
        return describe_blocks(memoryview(self._map), link.name)


def make_slots(rundir: RunDir, rank: int, sizes: dict[str, int], *, pinned: bool) -> list[SaveSlot]:
    """As many slots as there is room for, for one-dimensional fp32 tensors of these sizes.

    On the disk where the node has no memory to spare for even one. Raises OSError when that is
    full as well.
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
    """A new file in memory; its room is taken at once: to find none later kills the process."""
    path.unlink(missing_ok=True)
    with path.open("w+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            path.unlink()
            raise
        return mmap.mmap(file.fileno(), size)


def _pin(mapped: mmap.mmap) -> None:
    """Let the GPU copy into it by itself; without, saving takes longer, and is as right."""
    address = torch.frombuffer(mapped, dtype=torch.uint8).data_ptr()
    refused = int(torch.cuda.cudart().cudaHostRegister(address, len(mapped), 0))
    if refused:
        log.warning(
            "a save's memory could not be pinned (CUDA error %d): saving blocks longer", refused
        )
