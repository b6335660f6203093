"""The supervised loss."""

import math

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer, Bigram
from trainer.data.batch import padded
from trainer.methods.interface import scaled_loss
from trainer.methods.supervised import SupervisedLoss


def test_the_loss_is_the_sum_over_trained_tokens_only() -> None:
    logits = torch.tensor([[[math.log(3), 0.0], [0.0, math.log(9)], [5.0, 5.0]]])
    batch = padded([Tokens([1, 0, 0], [False, True, True])], pad_id=0)

    found = SupervisedLoss().scores(lambda **_: Answer(logits), batch)

    assert found.loss.item() == pytest.approx(math.log(4 / 3) + math.log(10))
    assert found.correct.item() == 1


def test_a_step_without_trained_tokens_is_zero_and_moves_nothing() -> None:
    model = Bigram()
    loss = scaled_loss(SupervisedLoss().scores(model, padded([], 0)).loss, 0, 2)
    loss.backward()

    assert loss.item() == 0.0
    assert model.table.grad is not None
    assert not model.table.grad.any()
