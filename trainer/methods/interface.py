"""The interface of training methods: how good the model is on a micro-batch, with gradient."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainer.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class BatchScores:
    """Sums over one micro-batch; sums, unlike means, add up across micro-steps and ranks."""

    loss: torch.Tensor  # with gradient
    correct: torch.Tensor  # units that the model gets right
    margin: torch.Tensor | float = 0.0  # of rewards, where there are any


class Method(Protocol):
    """A training method. Its unit is what the loss is a mean over: tokens, or pairs."""

    def begin(self, step: int) -> None:
        """Prepare for training step ``step`` (from 1), or an evaluation after it."""

    def units(self, batch: Batch) -> int:
        """Return the number of units of a micro-batch on the host."""
        ...

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Run the model on a batch that is on its device."""
        ...


def scaled_loss(loss_sum: torch.Tensor, units: int, world_size: int) -> torch.Tensor:
    """Return what a micro-step backpropagates, so that a step is the mean over all its units.

    ``units`` counts those of the global batch. DeepSpeed averages gradients over ranks, hence the
    factor; a step without units changes nothing.
    """
    return loss_sum * (world_size / max(units, 1))
