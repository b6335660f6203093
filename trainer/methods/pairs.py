"""Batches of pairs: each even sequence is preferred to the odd one after it."""

import torch

from trainer.data.batch import Batch
from trainer.methods.forward import trained_token_counts
from trainer.methods.interface import Method


def real_pairs(batch: Batch) -> torch.Tensor:
    """Return which pairs have both answers [pairs]: neither padding nor cut off.

    Without its counterpart, an answer would be pushed up or down alone.
    """
    return (trained_token_counts(batch) > 0).view(-1, 2).all(1)


class PairMethod(Method):
    """Base of methods of pairs: each pair counts alike, whatever the length of its answers."""

    def units(self, batch: Batch) -> int:
        """Return the number of pairs with both answers."""
        return int(real_pairs(batch).sum())
