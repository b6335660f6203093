"""The index file of a rank's part of a checkpoint: all but the tensors, as strict JSON.

Also plans which stored pieces of a parameter fill the range that a rank needs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trainer.checkpoint.rng_state import RngState
from trainer.contract import Manifest, Message, StepMetrics
from trainer.contract.wire import LATER
from trainer.engine.loss_scale import LossScale
from trainer.engine.loss_spikes import LossHistory

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class StoredFragment(Message):
    """Elements [start, start + numel) of the trained parameter ``name``."""

    name: str
    shape: tuple[int, ...]
    start: int
    numel: int


@dataclass(frozen=True, kw_only=True)
class RankIndex(Message):
    """One rank's part of a checkpoint, without the tensors."""

    format: int
    rank: int
    world_size: int
    step: int
    consumed_samples: int
    optimizer_step: int
    run_spec_sha256: str
    metrics: StepMetrics | None  # of the last step
    randomness: RngState
    fragments: tuple[StoredFragment, ...]
    averaged: bool = field(default=False, metadata=LATER)  # AVERAGE is stored beside STATES
    kl_beta: float | None = field(default=None, metadata=LATER)  # where it is steered
    tokens: int | None = field(default=None, metadata=LATER)  # trained so far
    losses: LossHistory | None = field(default=None, metadata=LATER)  # where spikes are looked for
    loss_scale: LossScale | None = field(default=None, metadata=LATER)  # of fp16
    valid_loss_before: float | None = field(default=None, metadata=LATER)  # the first step
    unmoved: bool = field(default=False, metadata=LATER)  # no step has changed the model yet


def index_name(rank: int) -> str:
    """Return the file name of a rank's index."""
    return f"rank-{rank:05d}.index.json"


def tensor_key(name: str, state: str) -> str:
    """Return the name of one state of one parameter in the tensors' file."""
    return f"{name}|{state}"


def read_index(folder: Path, rank: int, manifest: Manifest) -> RankIndex:
    """Read a rank's index; raise ValueError unless it belongs to the checkpoint."""
    index = RankIndex.from_json((folder / index_name(rank)).read_bytes())
    if index.format != FORMAT:
        raise ValueError(f"checkpoint format {index.format} is unknown; this program has {FORMAT}")
    expected = (manifest.world_size, manifest.step, manifest.run_spec_sha256, rank)
    if (index.world_size, index.step, index.run_spec_sha256, index.rank) != expected:
        raise ValueError(f"{index_name(rank)} does not belong to this checkpoint")
    return index


@dataclass(frozen=True)
class StoredPiece:
    """Elements [start, start + numel) of a parameter, as stored by one rank."""

    start: int
    numel: int
    rank: int


@dataclass(frozen=True)
class PieceCopy:
    """Copy ``numel`` elements: from ``source`` in the rank's piece to ``target`` in the range."""

    rank: int
    source: int
    target: int
    numel: int


def plan_copies(start: int, numel: int, pieces: Iterable[StoredPiece]) -> list[PieceCopy]:
    """Return the copies that fill [start, start + numel), in order; ValueError on a gap."""
    plan, filled, end = [], start, start + numel
    for piece in sorted(pieces, key=lambda p: (p.start, p.rank)):
        stop = min(end, piece.start + piece.numel)
        if piece.start <= filled < stop:
            plan.append(PieceCopy(piece.rank, filled - piece.start, filled - start, stop - filled))
            filled = stop
    if filled < end:
        raise ValueError(f"elements {filled} to {end} are in no file of the checkpoint")
    return plan
