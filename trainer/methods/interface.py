"""The interface of training methods: how good the model is on a micro-batch, with gradient."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from trainer.data.batch import Batch
from trainer.methods.forward import trained_token_counts


@dataclass(frozen=True, kw_only=True)
class BatchScores:
    """Sums over one micro-batch; sums, unlike means, add up across micro-steps and ranks."""

    loss: torch.Tensor  # with gradient
    correct: torch.Tensor  # units that the model gets right
    margin: torch.Tensor | float = 0.0  # of rewards, where there are any


class Method(ABC):
    """A training method. Its unit is what the loss is a mean over: tokens, or pairs."""

    def prepare_step(self, step: int) -> None:  # noqa: B027 - most methods have nothing to prepare
        """Prepare for training step ``step`` (from 1), or an evaluation after it."""

    @abstractmethod
    def units(self, batch: Batch) -> int:
        """Return the number of units of a micro-batch on the host."""

    @abstractmethod
    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Run the model on a batch that is on its device."""


def scaled_loss(loss_sum: torch.Tensor, units: int, world_size: int) -> torch.Tensor:
    """Return what a micro-step backpropagates, so that a step is the mean over all its units.

    ``units`` counts those of the global batch. DeepSpeed averages gradients over ranks, hence the
    factor; a step without units changes nothing.
    """
    return loss_sum * (world_size / max(units, 1))


def real_pairs(batch: Batch) -> torch.Tensor:
    """Return which pairs have both answers [pairs]: neither padding nor cut off.

    Without its counterpart, an answer would be pushed up or down alone.
    """
    return (trained_token_counts(batch) > 0).view(-1, 2).all(1)


class PairMethod(Method):
    """Base of methods of pairs: each pair counts alike, whatever the length of its answers.

    In a batch, each even sequence is preferred to the odd one after it.
    """

    def units(self, batch: Batch) -> int:
        """Return the number of pairs with both answers."""
        return int(real_pairs(batch).sum())
