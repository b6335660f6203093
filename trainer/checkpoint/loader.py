"""Loading a checkpoint of any world size and any ZeRO stage into this engine.

The supervisor has already verified size and checksum of every file; here it is checked
that the set is complete and belongs to this run.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from trainer.checkpoint import randomness
from trainer.checkpoint.fragments import Fragment, held, refresh, set_optimizer_step
from trainer.checkpoint.index import FORMAT, Index, index_name, key, tensors_name
from trainer.checkpoint.ranges import Piece, copies
from trainer.contract import MANIFEST, Manifest
from trainer.engine import set_steps
from trainer.state import Identity, State


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    indexes: tuple[Index, ...]  # by rank


def open_checkpoint(folder: Path, run_spec_sha256: str) -> Checkpoint:
    """Read the indexes, or raise ValueError when files are missing or of another run."""
    manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    if manifest.run_spec_sha256 != run_spec_sha256:
        raise ValueError("the checkpoint belongs to another run spec; load one of this job")
    sizes = {file.name: file.size for file in manifest.files}
    for rank in range(manifest.world_size):
        for name in (tensors_name(rank), index_name(rank)):
            if not (folder / name).is_file() or (folder / name).stat().st_size != sizes.get(name):
                raise ValueError(f"checkpoint file {name} is missing or cut; fetch it again")
    return Checkpoint(
        folder, tuple(_read_index(folder, rank, manifest) for rank in range(manifest.world_size))
    )


def load(engine: Any, checkpoint: Checkpoint, seed: int, identity: Identity) -> State:  # noqa: ANN401
    """Put engine and generators where the checkpoint has them, and say where that is.

    On the same world size everything is as it was, bit by bit. On another one the generators
    start anew from (seed, step, rank).
    """
    first = checkpoint.indexes[0]
    with torch.no_grad():
        _fill(held(engine), checkpoint)
        set_optimizer_step(engine, first.optimizer_step)
        refresh(engine)
    set_steps(engine, first.step)
    if first.world_size == identity.world_size:
        randomness.restore(checkpoint.indexes[identity.rank].randomness)
    else:
        randomness.seed(seed, first.step, identity.rank)
    return State(step=first.step, consumed_samples=first.consumed_samples, metrics=first.metrics)


def _read_index(folder: Path, rank: int, manifest: Manifest) -> Index:
    index = Index.from_json((folder / index_name(rank)).read_bytes())
    if index.format != FORMAT:
        raise ValueError(f"checkpoint format {index.format} is unknown; this trainer has {FORMAT}")
    told = (manifest.world_size, manifest.step, manifest.run_spec_sha256)
    if (index.world_size, index.step, index.run_spec_sha256) != told or index.rank != rank:
        raise ValueError(f"{index_name(rank)} does not belong to this checkpoint")
    return index


def _fill(fragments: list[Fragment], checkpoint: Checkpoint) -> None:
    pieces = defaultdict(list)
    for index in checkpoint.indexes:
        for stored in index.fragments:
            pieces[stored.name].append(Piece(stored.start, stored.numel, index.rank))
    files: dict[int, Any] = {}
    for fragment in fragments:
        for copy in copies(fragment.start, fragment.numel, pieces[fragment.name]):
            if copy.rank not in files:
                files[copy.rank] = safe_open(checkpoint.folder / tensors_name(copy.rank), "pt")
            for state, view in fragment.views.items():
                stored_slice = files[copy.rank].get_slice(key(fragment.name, state))
                part = stored_slice[copy.source : copy.source + copy.numel]
                view[copy.target : copy.target + copy.numel].copy_(part)
