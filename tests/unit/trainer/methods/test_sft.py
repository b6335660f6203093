"""The supervised loss."""

import math

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer, Bigram
from trainer.data.batch import padded
from trainer.methods.interface import scaled_loss
from trainer.methods.supervised import SupervisedLoss

ROWS = [
    Tokens([1, 2, 3, 4], [False, False, True, True]),
    Tokens([4, 3, 2], [False, True, True]),
    Tokens([2, 2], [False, False]),  # cut off before the assistant speaks
    Tokens([1, 4, 1, 4, 1], [False, True, True, True, True]),
]


def test_the_loss_is_the_sum_over_trained_tokens_only() -> None:
    logits = torch.tensor([[[math.log(3), 0.0], [0.0, math.log(9)], [5.0, 5.0]]])
    batch = padded([Tokens([1, 0, 0], [False, True, True])], pad_id=0)

    found = SupervisedLoss().scores(lambda **_: Answer(logits), batch)

    assert found.loss.item() == pytest.approx(math.log(4 / 3) + math.log(10))
    assert found.correct.item() == 1


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("micro", [1, 2])
def test_micro_steps_and_ranks_add_up_to_one_big_batch(world: int, micro: int) -> None:
    big, tokens = Bigram(), sum(padded([row], 0).targets for row in ROWS)
    scaled_loss(SupervisedLoss().scores(big, padded(ROWS, 0)).loss, tokens, 1).backward()
    small = Bigram()
    for at in range(0, len(ROWS), micro):
        batch = padded(ROWS[at : at + micro], 0)
        share = scaled_loss(SupervisedLoss().scores(small, batch).loss, tokens, world)
        (share / world).backward()  # DeepSpeed averages over the ranks

    assert big.table.grad is not None
    assert torch.allclose(big.table.grad, small.table.grad)


def test_a_step_without_trained_tokens_is_zero_and_moves_nothing() -> None:
    model = Bigram()
    loss = scaled_loss(SupervisedLoss().scores(model, padded([], 0)).loss, 0, 2)
    loss.backward()

    assert loss.item() == 0.0
    assert model.table.grad is not None
    assert not model.table.grad.any()
