"""Batches of pairs: the even sequences are preferred to the odd ones beside them."""

import torch

from trainer.data.batch import Batch
from trainer.methods.forward import trained_token_counts


def real_pairs(batch: Batch) -> torch.Tensor:
    """Which pairs hold both answers [pairs]: not padding, nor what the cut to the context left.

    Without the other one, an answer would be pushed up or down by itself.
    """
    return (trained_token_counts(batch) > 0).view(-1, 2).all(1)


class PairMethod:
    """What methods of pairs share: each pair counts alike, however long its answers are."""

    def begin(self, step: int) -> None:
        """Every step is like every other."""

    def units(self, batch: Batch) -> int:
        """Pairs of which both answers are left after the cut to the context."""
        return int(real_pairs(batch).sum())
