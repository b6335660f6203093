"""Files that are the machine's memory: saves on their way, and checkpoints to load.

They outlive trainer and supervisor, not the machine. So a trainer that crashes leaves its newest
save behind, and the next generation on this machine need not fetch it.
"""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

from trainer.checkpoint.checksum import find_difference
from trainer.contract import FileEntry
from trainer.rundir import TENSORS, RunDir

log = logging.getLogger(__name__)


class MemoryFolder:
    """A folder whose files are in memory, or on a fast local disk if that is what it was given."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._in_use = ""  # the folder that a trainer saves into now

    @property
    def checkpoints(self) -> Path:
        """Where fetched checkpoints lie."""
        return self._root / "checkpoints"

    def lay(self, folder: RunDir, number: int) -> None:
        """Give the trainer of generation ``number`` its part."""
        self._in_use = _name(number)
        own = self._root / self._in_use
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.memory.unlink(missing_ok=True)
        folder.memory.symlink_to(own)

    def save_size(self, folder: RunDir) -> int:
        """Bytes of this machine's part of a save, as far as its ranks have made room for one."""
        places = (folder.memory, folder.slots)
        return sum(p.stat().st_size for place in places for p in place.glob("rank-*.a"))

    def keep_only(self, number: int) -> None:
        """Free what trainers of other generations have saved into: it is loaded, or in Blob."""
        for folder in self._root.glob("gen-*"):
            if folder.name != _name(number):
                shutil.rmtree(folder, ignore_errors=True)

    def give(self, entry: FileEntry, target: Path) -> bool:
        """Have ``target`` be this file, if a trainer has left it here; not one byte differs."""
        here = self._find(entry)
        if here is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(here)
        return here is not None

    def _find(self, entry: FileEntry) -> Path | None:
        # The CRC alone: to hash takes longer, and whoever writes to this memory runs the trainer.
        unsigned = replace(entry, sha256="", block_sha256=())
        for path in self._root.glob(f"gen-*/{entry.name.removesuffix(TENSORS)}.?"):
            if path.parent.name == self._in_use:
                continue
            try:
                if path.stat().st_size == entry.size and not find_difference(path, unsigned):
                    return path
            except OSError as e:
                log.info("memory.unreadable path=%s reason=%s", path, e)
        return None


def _name(number: int) -> str:
    return f"gen-{number:04d}"
