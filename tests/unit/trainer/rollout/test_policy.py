"""The losses of reinforcement learning, by hand, and what an answer's tokens are given."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.trainer.model.bigram import Answer, Bigram
from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.methods.forward import log_probabilities
from trainer.methods.reinforcement import VALUE_SHARE, GrpoLoss, RlooLoss, make_policy_loss
from trainer.rollout.answer_batch import AnswerBatch, answer_batch
from trainer.rollout.experience import GradedAnswer


def row(*ids: int, advantage: float, behaviour: tuple[float, ...] = ()) -> GradedAnswer:
    """Token 1 asks, the rest answers."""
    return GradedAnswer(
        sample=0,
        number=0,
        born=0,
        ids=np.array([1, *ids], dtype=np.int32),
        prompt=1,
        grade=0.0,
        advantage=advantage,
        behaviour=np.array(behaviour, dtype=np.float32),
    )


def logp(model: Bigram, batch: AnswerBatch) -> list[float]:
    """Of each token of the answers."""
    log_probs: list[float] = log_probabilities(model, batch).tolist()
    return log_probs


def off_by(model: Bigram, rows: list[GradedAnswer], by: float) -> AnswerBatch:
    """Return the rows, given by a policy whose log-probabilities are lower by ``by``."""
    now = iter(logp(model, answer_batch(rows, 0, least=1)))
    shifted = [
        replace(r, behaviour=np.array([next(now) - by for _ in range(r.tokens)], dtype=np.float32))
        for r in rows
    ]
    return answer_batch(shifted, 0, least=1)


def test_of_its_own_fresh_answers_a_policy_learns_by_the_advantage_alone() -> None:
    model, rows = Bigram(), [row(2, 3, advantage=1.5), row(4, advantage=-0.5)]
    scores = GrpoLoss(GRADED).scores(model, answer_batch(rows, 0, least=1))
    scores.loss.backward()

    assert float(scores.loss.detach()) == pytest.approx(-(2 * 1.5 - 0.5))
    gained = model.table.grad
    reference = Bigram()
    batch = answer_batch(rows, 0, least=1)
    (-(log_probabilities(reference, batch) * batch.advantages).sum()).backward()
    assert torch.allclose(gained, reference.table.grad, atol=1e-7)


@pytest.mark.parametrize(("off", "advantage", "ratio"), [(0.5, 1.0, 1.2), (-0.5, -1.0, 0.8)])
def test_what_has_gone_far_enough_is_not_pushed_further(
    off: float, advantage: float, ratio: float
) -> None:
    model = Bigram()
    scores = GrpoLoss(GRADED).scores(model, off_by(model, [row(2, advantage=advantage)], off))
    scores.loss.backward()

    assert float(scores.loss.detach()) == pytest.approx(-ratio * advantage)
    assert torch.count_nonzero(model.table.grad) == 0


@pytest.mark.parametrize(("off", "advantage"), [(0.5, -1.0), (-0.5, 1.0)])
def test_what_has_gone_the_wrong_way_is_always_pulled_back(off: float, advantage: float) -> None:
    model = Bigram()
    scores = GrpoLoss(GRADED).scores(model, off_by(model, [row(2, advantage=advantage)], off))
    scores.loss.backward()

    assert float(scores.loss.detach()) == pytest.approx(-math.exp(off) * advantage)
    assert torch.count_nonzero(model.table.grad) > 0


def test_leaving_the_base_model_costs_schulmans_third_estimate() -> None:
    model, beta = Bigram(), 0.1
    plain = answer_batch([row(2, 3, advantage=0.0)], 0, least=1)
    reference = [value + 0.3 for value in logp(model, plain)]
    batch = replace(plain, beta=beta, reference=torch.tensor(reference))
    scores = GrpoLoss(GRADED).scores(model, batch)

    assert scores.loss.item() == pytest.approx(2 * beta * (math.exp(0.3) - 0.3 - 1), rel=1e-4)


def test_leave_one_out_takes_an_answer_for_one_action() -> None:
    model = Bigram()
    batch = off_by(model, [row(2, 3, advantage=-1.0), row(4, advantage=2.0)], 0.1)
    method = RlooLoss(GRADED)

    assert method.units(batch) == 2
    by_hand = math.exp(0.2) - 2 * math.exp(0.1)
    assert method.scores(model, batch).loss.item() == pytest.approx(by_hand, rel=1e-5)


class Valued(Bigram):
    """With a critic that expects the same of every token."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Answer:  # noqa: ANN401 - as Bigram's
        return replace(super().forward(input_ids), token_values=self.value.expand(input_ids.shape))


@pytest.mark.parametrize(
    ("value", "loss", "slope"),  # expected 0.5 before, should have expected 2.0; clip 0.2
    [
        (0.6, 1.4**2, -1.4),  # near enough
        (1.0, 1.3**2, 0.0),  # no credit for going further than 0.7
        (0.1, 1.9**2, -1.9),  # the wrong way: all of it counts
    ],
)
def test_a_critic_is_pulled_to_what_came_but_not_far_at_once(
    value: float, loss: float, slope: float
) -> None:
    model, method = Valued(value), make_policy_loss(replace(GRADED, algorithm="ppo"))
    rows = [row(2, 3, advantage=0.0)]
    batch = answer_batch(rows, 0, least=1, returns=np.array([2.0, 2.0]))
    scores = method.scores(model, replace(batch, values=torch.tensor([0.5, 0.5])))
    scores.loss.backward()

    assert scores.loss.item() == pytest.approx(2 * VALUE_SHARE * loss / 2)  # of two tokens
    assert model.value.grad.item() == pytest.approx(2 * VALUE_SHARE * slope)


def test_a_batch_without_answers_moves_nothing() -> None:
    model = Bigram()
    batch = answer_batch([], 0, least=4)
    for algorithm in ("grpo", "rloo"):
        method = make_policy_loss(replace(GRADED, algorithm=algorithm))
        assert method.units(batch) == 0
        scores = method.scores(model, batch)
        scores.loss.backward()
        assert scores.loss.item() == 0.0
        assert torch.count_nonzero(model.table.grad) == 0
