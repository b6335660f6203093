"""A rank's tensors of which some blocks are there: as the supervisor leaves them, and ranks read.

NAME.blocks has the bytes of the file NAME, each where it will lie, and behind them a mark for each
block: one byte. A block is marked once it is verified; what is not marked must not be read. A block
for which the memory had no room lies at the same place in NAME.spilled, on the disk. A file that
came whole is there by its own name, and then that one counts.
"""

import os
from enum import IntEnum
from pathlib import Path

from trainer.contract import FileEntry


class BlockState(IntEnum):
    """Where a block is."""

    MISSING = 0
    HERE = 1
    SPILLED = 2


class PartialTensors:
    """One such file; ``path`` is where it would be if it were whole."""

    def __init__(self, path: Path, entry: FileEntry) -> None:
        self.entry = entry
        self.whole = path
        self.path = path.with_name(f"{path.name}.blocks")
        self.spilled = path.with_name(f"{path.name}.spilled")

    def lay(self) -> None:
        """Make it, without a block; what there is of it stays. It takes room for the marks only."""
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        with part.open("wb") as file:
            file.truncate(self.entry.size)
            file.seek(self.entry.size)
            file.write(bytes(len(self.entry.blocks)))
        part.replace(self.path)

    def forget_lost(self) -> None:
        """What was spilled may be gone: who drops both files can be killed between them."""
        if self.spilled.exists() or not self.path.exists():
            return
        with self.path.open("r+b", buffering=0) as file:
            marks = os.pread(file.fileno(), len(self.entry.blocks), self.entry.size)
            left = marks.replace(bytes([BlockState.SPILLED]), bytes([BlockState.MISSING]))
            os.pwrite(file.fileno(), left, self.entry.size)

    def lay_spilled(self, place: Path) -> None:
        """Make the other one at ``place``; it has its length before anybody maps it."""
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            file.truncate(self.entry.size)
        if not self.spilled.exists():
            self.spilled.unlink(missing_ok=True)  # it led to what is gone
            self.spilled.symlink_to(place)

    def mark(self, block: int, mark: BlockState) -> None:
        """Say where the block is."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([mark]), self.entry.size + block)

    def at(self, block: int) -> BlockState:
        """Where the block is."""
        with self.path.open("rb", buffering=0) as file:
            return BlockState(os.pread(file.fileno(), 1, self.entry.size + block)[0])
