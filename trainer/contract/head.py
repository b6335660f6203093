"""The files of a job's container: HEAD, manifests and their entries. Standard library only.

Part of the contract: import it from `trainer.contract`.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated

from trainer.contract.bounds import (
    Bytes,
    CountBound,
    FileName,
    Folder,
    Int,
    Moment,
    Name,
    Sha256,
    TextBound,
)
from trainer.contract.wire import LATER, Message

CHECKPOINTS_KEPT = 3  # the newest; default of a job
MILESTONES_KEPT = 100  # of one job, so that HEAD stays small; a request for more is refused
MOST_NAMED = 1000  # checkpoints in HEAD: far more than any job keeps
MOST_FILES = 100_000  # of one checkpoint: ten of each of 10,000 ranks
MOST_BLOCKS = 2**17  # of one file: 2 TiB of them
HEAD = "HEAD"
MANIFEST = "manifest.json"


def checkpoint_path(step: int, nonce: str) -> str:
    """Return the folder of a checkpoint in the job's container; each generation has its nonce."""
    return f"checkpoints/step-{step:08d}-{nonce}"


def model_path(step: int, nonce: str) -> str:
    """Return the folder of the final model in the job's container."""
    return f"models/step-{step:08d}-{nonce}"


class StaleGeneration(Exception):
    """HEAD belongs to a newer generation: stop, and commit nothing."""


@dataclass(frozen=True, kw_only=True)
class FileEntry(Message):
    """One file of a checkpoint or model as it lies in Blob."""

    name: FileName
    size: Bytes
    etag: Name
    crc64nvme: Annotated[str, TextBound(16)]  # 16 hex digits, of the whole file
    block_size: Bytes = field(default=0, metadata=LATER)
    # CRC-64/NVME of each; or none
    blocks: Annotated[tuple[Annotated[str, TextBound(16)], ...], CountBound(MOST_BLOCKS)] = field(
        default=(), metadata=LATER
    )
    sha256: Sha256 = field(default="", metadata=LATER)  # of the whole file; "": see block_sha256
    # SHA-256 of each block; or none
    block_sha256: Annotated[tuple[Sha256, ...], CountBound(MOST_BLOCKS)] = field(
        default=(), metadata=LATER
    )

    def span(self, block: int) -> tuple[int, int]:
        """Return offset and length of a block; the last one may be shorter."""
        offset = block * self.block_size
        return offset, min(self.block_size, self.size - offset)


@dataclass(frozen=True, kw_only=True)
class Manifest(Message):
    """Every data file of one checkpoint (or model), without the ranks' records. Written once."""

    step: Int
    consumed_samples: Bytes
    world_size: Int
    generation: Int
    kind: Name  # "periodic", "stop" or "final"
    files: Annotated[tuple[FileEntry, ...], CountBound(MOST_FILES)]
    run_spec_sha256: Name
    saved_at: Moment
    parameters_sha256: Name = ""  # final models only

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True, kw_only=True)
class Committed(Message):
    """HEAD's entry of one committed checkpoint or of the final model."""

    path: Folder
    step: Int
    consumed_samples: Bytes
    world_size: Int
    generation: Int
    kind: Name
    size: Bytes
    manifest_sha256: Name
    committed_at: Moment
    parameters_sha256: Name = ""
    valid_loss: float | None = field(default=None, metadata=LATER)  # as last measured by its step
    milestone: bool = field(default=False, metadata=LATER)  # kept for as long as the job is


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The committed checkpoints that a job keeps: the newest, the best, milestones."""

    newest: int = CHECKPOINTS_KEPT
    milestone_every: int = 0  # steps: the first checkpoint at or after each multiple; 0: none

    def is_milestone(self, step: int, head: "Head") -> bool:
        """Return whether a checkpoint that follows ``head`` is the first past a multiple."""
        if not self.milestone_every:
            return False
        before = head.newest.step if head.newest else 0
        passed = step // self.milestone_every > before // self.milestone_every
        return passed and sum(c.milestone for c in head.checkpoints) < MILESTONES_KEPT

    def retained_checkpoints(self, head: "Head", loaded: str) -> tuple[Committed, ...]:
        """Return the checkpoints of ``head`` that stay, oldest first.

        ``loaded`` is what the generation started from. It stays as long as the generation lives: a
        node may still be reading it.
        """
        recent = {c.path for c in head.checkpoints[-self.newest :]}
        best = head.best.path if head.best else ""
        return tuple(
            c for c in head.checkpoints if c.milestone or c.path in recent | {best, loaded}
        )


@dataclass(frozen=True, kw_only=True)
class Head(Message):
    """The one blob that says which checkpoints exist and which generation may add to them.

    Every write is a compare-and-swap on the ETag that was read (If-Match), so of two
    writers one loses and must read again.
    """

    generation: Int
    checkpoints: Annotated[tuple[Committed, ...], CountBound(MOST_NAMED)] = ()  # oldest first
    model: Committed | None = None

    @property
    def newest(self) -> Committed | None:
        """The checkpoint that the next generation loads."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def best(self) -> Committed | None:
        """The checkpoint with the lowest validation loss; the oldest of equals."""
        losses = [(c.valid_loss, c) for c in self.checkpoints if c.valid_loss is not None]
        measured = [(loss, c) for loss, c in losses if math.isfinite(loss)]
        return min(measured, key=lambda pair: pair[0], default=(0.0, None))[1]

    @property
    def paths(self) -> frozenset[str]:
        """Every folder that HEAD names."""
        named = (*self.checkpoints, *((self.model,) if self.model else ()))
        return frozenset(c.path for c in named)

    def kept_as(self, entry: Committed) -> str:
        """Return why the checkpoint is kept: "milestone", "best" or "recent"."""
        if entry.milestone:
            return "milestone"
        return "best" if entry == self.best else "recent"

    def fenced(self, number: int, broken: Collection[str] = ()) -> "Head":
        """Return HEAD taken by generation ``number``; no older generation can commit from then on.

        Checkpoints at ``broken`` are dropped, so the generation loads the newest one before them.
        Raises StaleGeneration when a newer generation has taken HEAD.
        """
        if number < self.generation:
            raise StaleGeneration(f"generation {number} came after {self.generation}")
        intact = tuple(c for c in self.checkpoints if c.path not in broken)
        return replace(self, generation=number, checkpoints=intact)

    def with_checkpoint(
        self, entry: Committed, retention: Retention | None = None, loaded: str = ""
    ) -> "Head":
        """Return HEAD with one more checkpoint, and without those that need not be kept."""
        self._admit(entry)
        retention = retention or Retention()
        entry = replace(entry, milestone=retention.is_milestone(entry.step, self))
        extended = replace(self, checkpoints=(*self.checkpoints, entry))
        return replace(extended, checkpoints=retention.retained_checkpoints(extended, loaded))

    def with_model(self, entry: Committed, retention: Retention | None = None) -> "Head":
        """Return HEAD with the final model: the job's result exists from here on.

        With a ``retention`` the checkpoint that the generation loaded is dropped: nothing reads it
        now.
        """
        self._admit(entry)
        retained = retention.retained_checkpoints(self, "") if retention else self.checkpoints
        return replace(self, model=entry, checkpoints=retained)

    def _admit(self, entry: Committed) -> None:
        if entry.generation != self.generation:
            raise StaleGeneration(f"HEAD is {self.generation}'s, not {entry.generation}'s")
        if self.newest and entry.step < self.newest.step:
            raise StaleGeneration(
                f"step {entry.step} is older than the committed {self.newest.step}"
            )
