"""A tensors file that arrives block by block: the supervisor writes blocks, ranks read them.

NAME.blocks has the bytes of the file NAME at their final offsets, followed by one state byte for
each block. A block is marked once it is verified; unmarked blocks must not be read. Blocks that do
not fit into memory are at the same offset in NAME.spilled, on the disk. A file NAME that is there
as a whole takes precedence.
"""

import os
from enum import IntEnum
from pathlib import Path

from trainer.contract import FileEntry


class BlockState(IntEnum):
    """Where a block is."""

    MISSING = 0
    IN_PLACE = 1
    SPILLED = 2


class PartialTensors:
    """One file that arrives in blocks; ``path`` is its name once it is whole."""

    def __init__(self, path: Path, entry: FileEntry) -> None:
        self.entry = entry
        self.final_path = path
        self.path = path.with_name(f"{path.name}.blocks")
        self.spilled = path.with_name(f"{path.name}.spilled")

    def create(self) -> None:
        """Create the sparse file with no block marked; an existing one stays."""
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part_path = self.path.with_name(f".{self.path.name}.part")
        with part_path.open("wb") as file:
            file.truncate(self.entry.size)
            file.seek(self.entry.size)
            file.write(bytes(len(self.entry.blocks)))
        part_path.replace(self.path)

    def unmark_lost(self) -> None:
        """Unmark spilled blocks whose file is gone: a kill can separate the two deletions."""
        if self.spilled.exists() or not self.path.exists():
            return
        with self.path.open("r+b", buffering=0) as file:
            marks = os.pread(file.fileno(), len(self.entry.blocks), self.entry.size)
            cleared = marks.replace(bytes([BlockState.SPILLED]), bytes([BlockState.MISSING]))
            os.pwrite(file.fileno(), cleared, self.entry.size)

    def create_spilled(self, path: Path) -> None:
        """Create the spilled file at ``path``, in full length, before anyone maps it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.truncate(self.entry.size)
        if not self.spilled.exists():
            self.spilled.unlink(missing_ok=True)  # a link to a deleted file
            self.spilled.symlink_to(path)

    def set_block_state(self, block: int, mark: BlockState) -> None:
        """Record where the block is."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([mark]), self.entry.size + block)

    def block_state(self, block: int) -> BlockState:
        """Return where the block is."""
        with self.path.open("rb", buffering=0) as file:
            return BlockState(os.pread(file.fileno(), 1, self.entry.size + block)[0])
