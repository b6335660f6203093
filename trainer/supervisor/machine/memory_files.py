"""Files in the machine's memory: saves to be uploaded, and checkpoints to load.

They outlive trainer and supervisor, not the machine. After a crash of the trainer the next
generation on this machine need not fetch the newest save.
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
    """A folder in memory, or on a fast local disk."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._in_use = ""  # the folder that a trainer saves into now

    @property
    def checkpoints(self) -> Path:
        """Folder of fetched checkpoints."""
        return self._root / "checkpoints"

    def assign_folder(self, folder: RunDir, number: int) -> None:
        """Link a folder for the trainer of generation ``number``."""
        self._in_use = _name(number)
        target = self._root / self._in_use
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.memory.unlink(missing_ok=True)
        folder.memory.symlink_to(target)

    def save_size(self, folder: RunDir) -> int:
        """Return the bytes of this machine's part of a save, as far as its slots are made."""
        directories = (folder.memory, folder.slots)
        return sum(
            p.stat().st_size for directory in directories for p in directory.glob("rank-*.a")
        )

    def keep_only(self, number: int) -> None:
        """Delete the saves of other generations: they are loaded, or in Blob."""
        for folder in self._root.glob("gen-*"):
            if folder.name != _name(number):
                shutil.rmtree(folder, ignore_errors=True)

    def reuse_file(self, entry: FileEntry, target: Path) -> bool:
        """Link ``target`` to an equal file of a trainer; return whether there is one."""
        existing = self._find(entry)
        if existing is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(existing)
        return existing is not None

    def _find(self, entry: FileEntry) -> Path | None:
        # The CRC suffices: hashing takes longer, and only the trainer can write to this memory.
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
