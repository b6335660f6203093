"""The folder through which a node's supervisor and its trainer processes speak: files only.

One folder per generation. Whatever is written here appears whole (write, fsync, rename),
so either side may be killed between any two lines; only the two .jsonl files grow line by
line. The supervisor writes the generation row before it starts torchrun, then what the
ranks may read once `ready` is there, and the stop flag later; the trainer writes the rest.

    generation.json         the generation row
    run-spec.json           what to train
    inputs/CONTAINER/NAME   base model and data files
    base                    the base model that was made of a starting checkpoint: a link
    checkpoint/             the checkpoint to load: manifest and indexes, verified, and what has
                            come of the tensors (trainer/checkpoint/partial_tensors.py). After
                            `ready`; absent when fresh. A link to the node's own copies
                            (trainer/supervisor/input/cache.py)
    wanted/rank-00000.json  which bytes of it this rank reads, in this order; written once its
                            engine is built. Each block of them it waits for
    cache/tokens-KEY...     tokenized data (trainer/data/tokens.py): fetched, maybe late, or written
                            by rank 0's child. A link: the node keeps it for its next generations
    ready                   exists: the run spec and all inputs are there and verified
    stop                    exists: drop the step under way, save, then end; with "step" in it, end
                            that step first. Laid out as `.stop` and `.stop-after-step` before, so
                            that raising it needs no room on the disk
    save-cost.json          what the last save has cost: a SaveCost; rank 0
    memory/                 what lies in the node's memory: a link, made by the supervisor. In it
                            each rank's slots for saves, rank-00000.a
                            (trainer/checkpoint/host_buffers.py)
    slots/                  the same on the disk, for want of memory
    outbox/FOLDER/          one save: each rank's data files, then its rank-00000.json. Tensors are
                            links to a slot, which is free again once FOLDER has left the outbox
    metrics.jsonl           one StepMetrics a line; node rank 0 only
    spans.jsonl             one Span a line, e.g. load, first_step
    progress                number of the last training step loaded or finished
    warnings/NAME.txt       what the user should know of the training, in words; rank 0
    skipped/rank-00000.json why this rank gave up its last save; gone once one was written
    verification/           what the process that verifies the export is asked, and its result
    out-of-memory/rank-00000.json  memory ran out while this rank trained: it is about to fail
    non_retryable/rank-00000.txt why no second try would help, in words for the user
    unhealthy/rank-00000.txt why this machine must be replaced, in words for the user
    results/rank-00000.json how this rank ended, written last; no file means it failed
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract import MANIFEST, Message
from trainer.contract.wire import LATER


@dataclass(frozen=True, kw_only=True)
class SavedFile(Message):
    """One file in an outbox folder."""

    name: str
    size: int
    crc64nvme: str  # 16 hex digits
    block_size: int = field(default=0, metadata=LATER)
    blocks: tuple[str, ...] = field(default=(), metadata=LATER)  # as in the manifest
    sha256: str = field(default="", metadata=LATER)
    block_sha256: tuple[str, ...] = field(default=(), metadata=LATER)  # once it was uploaded


@dataclass(frozen=True, kw_only=True)
class RankSave(Message):
    """One rank's part of a save. A save is whole when all ``writers`` have a record."""

    path: str  # the folder in the job's container
    rank: int
    writers: int  # ranks that write to this folder: the world size, or 1 for a model
    step: int
    consumed_samples: int
    world_size: int
    generation: int
    kind: str  # "periodic", "stop" or "final"
    saved_at: float
    files: tuple[SavedFile, ...]
    parameters_sha256: str = ""  # final models only

    @property
    def name(self) -> str:
        """File name of this record."""
        return rank_record(self.rank)


@dataclass(frozen=True, kw_only=True)
class RankResult(Message):
    """How one rank ended: "stopped" (its save, if any, is whole) or "finished"."""

    how: str
    step: int


@dataclass(frozen=True, kw_only=True)
class OutOfMemoryMark(Message):
    """What a rank had no memory for in a training step or a validation."""

    message: str  # the allocator's: requested and available bytes
    micro_batch: int
    gradient_checkpointing: bool
    peak: int  # bytes that were allocated at once on the GPU; 0 on a CPU


@dataclass(frozen=True, kw_only=True)
class ByteRange(Message):
    """Bytes [begin, end) of a file of the checkpoint."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class WantedRanges(Message):
    """The ranges that one rank reads of a checkpoint's tensors, in this order."""

    ranges: tuple[ByteRange, ...]


TENSORS = ".safetensors"
AFTER_STEP = "step"  # in the stop flag


def tensors_name(rank: int) -> str:
    """Return the file name of a rank's tensors."""
    return f"rank-{rank:05d}{TENSORS}"


def is_tensors(name: str) -> bool:
    """Return whether a file of a checkpoint holds a rank's tensors."""
    return name.endswith(TENSORS)


def rank_record(rank: int) -> str:
    """Return the name of the record that completes one rank's part of a save."""
    return f"rank-{rank:05d}.json"


class RunDir:
    """Paths in one generation's folder, as the module describes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.generation = root / "generation.json"
        self.run_spec = root / "run-spec.json"
        self.converted_base = root / "base"
        self.checkpoint = root / "checkpoint"
        self.cache = root / "cache"
        self.ready = root / "ready"
        self.stop = root / "stop"
        self.save_cost = root / "save-cost.json"
        self.skipped = root / "skipped"
        self.memory = root / "memory"
        self.slots = root / "slots"
        self.outbox = root / "outbox"
        self.metrics = root / "metrics.jsonl"
        self.spans = root / "spans.jsonl"
        self.progress = root / "progress"
        self.warnings = root / "warnings"
        self.verification = root / "verification"
        self._prepared_stop = root / ".stop"
        self._prepared_stop_after_step = root / ".stop-after-step"

    def input(self, path: str) -> Path:
        """Return the path of the input blob "container/name"."""
        return self.root / "inputs" / path

    def wanted_ranges(self, rank: int) -> Path:
        """Return the path of the ranges that the rank reads of the checkpoint."""
        return self.root / "wanted" / rank_record(rank)

    def prepare_stop_flag(self) -> None:
        """Create both kinds of the stop flag, to be renamed later."""
        write_atomically(self._prepared_stop, "")
        write_atomically(self._prepared_stop_after_step, AFTER_STEP)

    def raise_stop_flag(self, *, after_step: bool = False) -> None:
        """Ask for a save between two steps and an end; idempotent.

        ``after_step``: finish the step under way first.
        """
        if not self.stop.exists():
            (self._prepared_stop_after_step if after_step else self._prepared_stop).replace(
                self.stop
            )

    def make_room(self) -> None:
        """Delete what a trainer in training no longer needs."""
        for path in self.cache.glob("*"):  # tokens, also those that are being made or fetched
            path.unlink(missing_ok=True)
        drop_checkpoint(self.checkpoint)
        for folder in (self.root / "refused", self.root / "sent"):
            shutil.rmtree(folder, ignore_errors=True)

    def save_folder(self, blob_path: str) -> Path:
        """Return the outbox folder of the save that goes to ``blob_path``."""
        return self.outbox / blob_path.replace("/", "-")

    def out_of_memory(self, rank: int) -> Path:
        """Return the path of the rank's out-of-memory mark."""
        return self.root / "out-of-memory" / rank_record(rank)

    def non_retryable(self, rank: int) -> Path:
        """Return the path of the rank's non-retryable error."""
        return self.root / "non_retryable" / f"rank-{rank:05d}.txt"

    def unhealthy(self, rank: int) -> Path:
        """Return the path of the reason to replace the machine."""
        return self.root / "unhealthy" / f"rank-{rank:05d}.txt"

    def result(self, rank: int) -> Path:
        """Return the path of the rank's result."""
        return self.root / "results" / rank_record(rank)


def drop_checkpoint(folder: Path) -> None:
    """Delete a fetched checkpoint, or the one that a link leads to.

    Its manifest goes first: without it there is no checkpoint, whatever becomes of the rest.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder.resolve(), ignore_errors=True)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file atomically and durably: it appears whole or not at all."""
    raw = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    part_path = path.with_name(f".{path.name}.part")
    with part_path.open("wb") as f:
        f.write(raw)
        f.flush()
        os.fsync(f.fileno())
    part_path.replace(path)
