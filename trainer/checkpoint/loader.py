"""Load a checkpoint of any world size and ZeRO stage into this engine.

The ranges that a rank reads follow from the indexes alone, so they are requested before the first
tensor is there, and copied in that order as they arrive. The supervisor verifies size and checksum
of what it fetches; this module checks that nothing is missing and that it belongs to this run.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import rng_state
from trainer.checkpoint.answers import answers_name, read_answers, redistribute_answers
from trainer.checkpoint.fragments import (
    AVERAGE,
    STATES,
    Fragment,
    held_fragments,
    refresh_weights,
    set_optimizer_step,
)
from trainer.checkpoint.index import (
    RankIndex,
    StoredPiece,
    index_name,
    plan_copies,
    read_index,
    tensor_key,
)
from trainer.checkpoint.partial_tensors import PartialTensors
from trainer.checkpoint.safetensors_file import TensorsFile
from trainer.contract import MANIFEST, FileEntry, Manifest
from trainer.engine import loss_scale
from trainer.engine.deepspeed_engine import set_steps
from trainer.rollout.experience import ReplayState
from trainer.rundir import ByteRange, WantedRanges, tensors_name
from trainer.state import RankIdentity, TrainingState


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on this node; some blocks of its tensors may not have arrived yet."""

    folder: Path
    indexes: tuple[RankIndex, ...]  # by rank
    files: dict[str, FileEntry]

    def open_tensors(self, rank: int) -> TensorsFile:
        """Open the tensors that a rank saved; raise ValueError if they are missing."""
        path = self.folder / tensors_name(rank)
        if not PartialTensors(path, self.manifest_entry(path)).path.exists():
            self.require_full_file(path)
        index = self.indexes[rank]
        states = (*STATES, AVERAGE) if index.averaged else STATES
        sizes = {tensor_key(f.name, state): f.numel for f in index.fragments for state in states}
        return TensorsFile(path, self.manifest_entry(path), sizes)

    def require_full_file(self, path: Path) -> None:
        """Raise ValueError unless this file is there in full length."""
        if not path.is_file() or path.stat().st_size != self.manifest_entry(path).size:
            raise ValueError(f"checkpoint file {path.name} is missing or cut; fetch it again")

    def experience(self, identity: RankIdentity, *, all_waiting: bool) -> ReplayState:
        """Return this rank's answers; those of another world size are redistributed.

        ``all_waiting``: the micro-batch may be another one, which gives samples to other ranks.
        """
        same = len(self.indexes) == identity.world_size
        if same and not all_waiting:
            return self._answers(identity.rank)
        parts = [self._answers(rank) for rank in range(len(self.indexes))]
        shared = redistribute_answers(parts, identity.world_size, identity.rank)
        return replace(shared, replay=parts[identity.rank].replay) if same else shared

    def _answers(self, rank: int) -> ReplayState:
        path = self.folder / answers_name(rank)
        if path.name not in self.files:
            return ReplayState()
        self.require_full_file(path)
        return read_answers(path)

    def manifest_entry(self, path: Path) -> FileEntry:
        """Return the manifest's entry of a file."""
        if path.name not in self.files:
            raise ValueError(f"checkpoint file {path.name} is not in the manifest")
        return self.files[path.name]


@dataclass(frozen=True)
class TensorRead:
    """A copy to do: bytes [begin, end) of the file of ``rank`` into ``into``."""

    rank: int
    tensors: TensorsFile
    begin: int
    end: int
    into: torch.Tensor


def open_checkpoint(folder: Path, run_spec_sha256: str) -> CheckpointFiles:
    """Read the indexes; raise ValueError when files are missing or belong to another run."""
    manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    if manifest.run_spec_sha256 != run_spec_sha256:
        raise ValueError("the checkpoint belongs to another run spec; load one of this job")
    files = {file.name: file for file in manifest.files}
    ranks = range(manifest.world_size)
    for rank in ranks:
        CheckpointFiles(folder, (), files).require_full_file(folder / index_name(rank))
    return CheckpointFiles(
        folder, tuple(read_index(folder, rank, manifest) for rank in ranks), files
    )


def load_checkpoint(
    engine: Any,  # noqa: ANN401
    checkpoint: CheckpointFiles,
    seed: int,
    identity: RankIdentity,
    ask: Callable[[WantedRanges], None] | None = None,
    *,
    all_waiting: bool = False,
) -> TrainingState:
    """Restore engine and random generators from a checkpoint; return the training state.

    Args:
        ask: Called with the ranges to read, before they are read.
        all_waiting: See `CheckpointFiles.experience`.

    On the same world size the state is restored bit by bit. On another one the generators are
    seeded from (seed, step, rank).
    """
    first = checkpoint.indexes[0]
    with torch.no_grad():
        reads = plan_reads(held_fragments(engine), checkpoint)
        if ask is not None:
            ask(ranges_to_read(reads))
        for read in reads:
            read.tensors.copy(read.begin, read.end, read.into)
        set_optimizer_step(engine, first.optimizer_step)
        refresh_weights(engine)
    set_steps(engine, first.step)
    loss_scale.restore_loss_scale(engine, first.loss_scale)
    if first.world_size == identity.world_size:
        rng_state.restore_rng(checkpoint.indexes[identity.rank].randomness)
    else:
        rng_state.seed_rng(seed, first.step, identity.rank)
    return TrainingState(
        step=first.step,
        consumed_samples=first.consumed_samples,
        metrics=first.metrics,
        experience=checkpoint.experience(identity, all_waiting=all_waiting),
        kl_beta=first.kl_beta,
        tokens=first.tokens,
        valid_loss_before=first.valid_loss_before,
        losses=first.losses,
        unmoved=first.unmoved,
    )


def plan_reads(fragments: Sequence[Fragment], checkpoint: CheckpointFiles) -> list[TensorRead]:
    """Return the reads that fill these fragments, in their order."""
    pieces = defaultdict(list)
    for index in checkpoint.indexes:
        for stored in index.fragments:
            pieces[stored.name].append(StoredPiece(stored.start, stored.numel, index.rank))
    files: dict[int, TensorsFile] = {}
    reads = []
    for fragment in fragments:
        for copy in plan_copies(fragment.start, fragment.numel, pieces[fragment.name]):
            if copy.rank not in files:
                files[copy.rank] = checkpoint.open_tensors(copy.rank)
            tensors = files[copy.rank]
            for state, view in fragment.views.items():
                begin = tensors.layout.offsets[tensor_key(fragment.name, state)] + 4 * copy.source
                into = view.narrow(0, copy.target, copy.numel)
                reads.append(TensorRead(copy.rank, tensors, begin, begin + 4 * copy.numel, into))
    return reads


def ranges_to_read(reads: Sequence[TensorRead]) -> WantedRanges:
    """Return the byte ranges of the reads: each file's header first, neighbours merged."""
    ranges: list[ByteRange] = []
    seen: set[int] = set()
    for read in reads:
        name = tensors_name(read.rank)
        if read.rank not in seen:
            seen.add(read.rank)
            ranges.append(ByteRange(file=name, begin=0, end=len(read.tensors.layout.beginning)))
        last = ranges[-1]
        if (last.file, last.end) == (name, read.begin):
            ranges[-1] = ByteRange(file=name, begin=last.begin, end=read.end)
        else:
            ranges.append(ByteRange(file=name, begin=read.begin, end=read.end))
    return WantedRanges(ranges=tuple(ranges))
