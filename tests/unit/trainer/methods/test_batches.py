"""A step is the same however its rows lie in micro-batches and on ranks, for every loss."""

from typing import Any

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import PAIRS, Bigram, answer, batch_of
from trainer.contract import Dpo
from trainer.data.batch import Batch, padded
from trainer.methods.dpo import DpoLoss
from trainer.methods.forward import log_probabilities
from trainer.methods.interface import scaled_loss
from trainer.methods.orpo import OrpoLoss, OrpoOptions
from trainer.methods.supervised import SupervisedLoss

CHATS = [
    Tokens([1, 2, 3, 4], [False, False, True, True]),
    Tokens([4, 3, 2], [False, True, True]),
    Tokens([2, 2], [False, False]),  # cut off before the assistant speaks
    answer(4, 1, 4, 1),
]


def reference(batch: Batch) -> torch.Tensor:
    """Return the log-probabilities of another model."""
    with torch.no_grad():
        return log_probabilities(Bigram(2), batch)


METHODS = {
    "supervised": SupervisedLoss(),
    "dpo": DpoLoss(Dpo(beta=0.5), reference),
    "ipo": DpoLoss(Dpo(beta=0.5, loss="ipo"), reference),
    "orpo": OrpoLoss(OrpoOptions(beta=0.3)),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("world", [1, 2])
def test_micro_steps_and_ranks_add_up_to_one_big_batch(name: str, micro: int, world: int) -> None:
    method, rows = METHODS[name], CHATS if name == "supervised" else PAIRS
    whole, big, small = _batch(rows), Bigram(), Bigram()
    units = method.units(whole)
    scaled_loss(method.scores(big, whole).loss, units, 1).backward()
    for at in range(0, len(rows), micro):
        share = method.scores(small, _batch(rows[at : at + micro])).loss
        (scaled_loss(share, units, world) / world).backward()  # DeepSpeed averages over ranks

    assert big.table.grad is not None
    assert torch.allclose(big.table.grad, small.table.grad, atol=1e-7)


def _batch(rows: list[Any]) -> Batch:
    return padded(rows, pad_id=0) if isinstance(rows[0], Tokens) else batch_of(*rows)
