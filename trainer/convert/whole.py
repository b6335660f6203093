"""Assemble the trained parameters of a checkpoint, one at a time, for any world size.

The critic is left out: only training needs it.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from trainer.checkpoint.index import (
    RankIndex,
    StoredPiece,
    index_name,
    plan_copies,
    read_index,
    tensor_key,
)
from trainer.contract import Manifest, RunSpec
from trainer.contract.deepspeed_config import BETAS, EPSILON
from trainer.engine.lr_schedule import learning_rate
from trainer.model.actor_critic import ACTOR, CRITIC
from trainer.rundir import tensors_name


class FullParameters:
    """Reads the files of one checkpoint, one parameter at a time."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._files: dict[int, Any] = {}
        self._stored: dict[str, str] = {}
        self._pieces: dict[str, list[StoredPiece]] = defaultdict(list)
        self.shapes: dict[str, tuple[int, ...]] = {}
        indexes = [_read_index(folder, rank, manifest) for rank in range(manifest.world_size)]
        self.index = indexes[0]
        for index in indexes:
            for stored in index.fragments:
                if stored.name.startswith(CRITIC):
                    continue
                name = stored.name.removeprefix(ACTOR)
                self.shapes[name], self._stored[name] = stored.shape, stored.name
                piece = StoredPiece(stored.start, stored.numel, index.rank)
                self._pieces[name].append(piece)

    def tensor(self, name: str, state: str) -> torch.Tensor:
        """Return one state of one parameter, fp32; raise ValueError when a part is missing."""
        shape = self.shapes[name]
        full = torch.empty(shape, dtype=torch.float32)
        flat = full.view(-1)
        try:
            plan = plan_copies(0, flat.numel(), self._pieces[name])
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from e
        for copy in plan:
            stored = self._file(copy.rank).get_slice(tensor_key(self._stored[name], state))
            values = stored[copy.source : copy.source + copy.numel]
            flat[copy.target : copy.target + copy.numel].copy_(values)
        return full

    def _file(self, rank: int) -> Any:  # noqa: ANN401 - safetensors is untyped
        if rank not in self._files:
            self._files[rank] = safe_open(self._folder / tensors_name(rank), "pt")
        return self._files[rank]


def _read_index(folder: Path, rank: int, manifest: Manifest) -> RankIndex:
    name = index_name(rank)
    if name not in {file.name for file in manifest.files}:
        raise ValueError(f"the manifest does not list {name}: this is a model, not a checkpoint")
    return read_index(folder, rank, manifest)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same hyperparameters."""

    names: tuple[str, ...]
    numbers: dict[str, Any]  # as torch's AdamW calls them


def parameter_groups(parameters: FullParameters, spec: RunSpec) -> list[ParameterGroup]:
    """Return the groups in the trainer's order: matrices decay; norms and biases do not.

    A checkpoint does not hold the groups: they are derived from the run spec.
    """
    decayed = tuple(name for name, shape in parameters.shapes.items() if len(shape) > 1)
    undecayed = tuple(name for name, shape in parameters.shapes.items() if len(shape) <= 1)
    rate = learning_rate(
        max(parameters.index.step, 1),
        peak=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        total_steps=spec.total_steps,
        min_ratio=spec.min_lr_ratio,
    )
    common = {"lr": rate, "betas": BETAS, "eps": EPSILON}
    groups = [(decayed, spec.weight_decay), (undecayed, 0.0)]
    return [
        ParameterGroup(names, common | {"weight_decay": decay}) for names, decay in groups if names
    ]
