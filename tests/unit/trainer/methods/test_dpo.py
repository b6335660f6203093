"""The losses of supervised training and of direct preference optimization."""

import math
from typing import Any

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import CUT_OFF, PAIRS, Answer, Bigram, answer, batch_of
from trainer.contract import Dpo
from trainer.contract import Dpo as Settings
from trainer.data.batch import Batch, padded
from trainer.methods.dpo import DpoLoss
from trainer.methods.forward import log_probabilities
from trainer.methods.interface import scaled_loss
from trainer.methods.orpo import OrpoLoss, OrpoOptions
from trainer.methods.reference_model import disabled_adapters
from trainer.methods.supervised import SupervisedLoss


def reference(batch: Batch) -> torch.Tensor:
    """Another model's word."""
    with torch.no_grad():
        return log_probabilities(Bigram(2), batch)


def log_probability(table: torch.Tensor, tokens: Tokens) -> float:
    """By hand: of each token after the one before."""
    rows = torch.log_softmax(table.detach(), dim=1)
    return sum(float(rows[a, b]) for a, b in zip(tokens.ids, tokens.ids[1:], strict=False))


def gains(model: Bigram, pair: tuple[Tokens, Tokens]) -> list[float]:
    """By hand: each answer's log-probability less that of the reference."""
    return [
        log_probability(model.table, tokens) - log_probability(Bigram(2).table, tokens)
        for tokens in pair
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_sigmoid_loss_is_that_of_the_paper(smoothing: float) -> None:
    model, beta = Bigram(1), 0.3
    dpo = DpoLoss(Settings(beta=beta, label_smoothing=smoothing), reference)

    found = dpo.scores(model, batch_of(*PAIRS))

    margins = [beta * (first - second) for first, second in (gains(model, p) for p in PAIRS)]
    right = [math.log1p(math.exp(-m)) for m in margins]
    wrong = [math.log1p(math.exp(m)) for m in margins]
    expected = (1 - smoothing) * sum(right) + smoothing * sum(wrong)
    assert found.loss.item() == pytest.approx(expected, rel=1e-6)
    assert found.margin.item() == pytest.approx(sum(margins), rel=1e-5)  # type: ignore[union-attr]
    assert found.correct.item() == sum(m > 0 for m in margins)


def test_the_ipo_loss_is_a_square_around_half_of_one_over_beta() -> None:
    model, beta = Bigram(1), 0.3

    found = DpoLoss(Settings(beta=beta, loss="ipo"), reference).scores(model, batch_of(*PAIRS))

    expected = 0.0
    for pair in PAIRS:
        means = [g / (len(t.ids) - 1) for g, t in zip(gains(model, pair), pair, strict=True)]
        expected += (means[0] - means[1] - 1 / (2 * beta)) ** 2
    assert found.loss.item() == pytest.approx(expected, rel=1e-6)


def test_pairs_that_are_padding_or_cut_before_their_answers_count_for_nothing() -> None:
    dpo, model = DpoLoss(Settings(beta=0.1), reference), Bigram(1)
    empty, cut = batch_of(), batch_of((CUT_OFF, CUT_OFF))
    alone = batch_of((CUT_OFF, PAIRS[0][1]))  # would be pushed down, against nothing
    beside = batch_of(PAIRS[0], (CUT_OFF, CUT_OFF))

    assert [dpo.units(batch) for batch in (empty, cut, alone, beside)] == [0, 0, 0, 1]
    for batch in (empty, cut, alone):
        found = dpo.scores(model, batch)
        assert (found.loss.item(), found.correct.item()) == (0.0, 0)
    whole = dpo.scores(model, batch_of(PAIRS[0])).loss
    assert dpo.scores(model, beside).loss.item() == pytest.approx(whole.item())


class Adapted(Bigram):
    """A base whose adapter adds one to the logit of the first token; as peft's, it is its base."""

    adds = 1.0

    @property
    def module(self) -> "Adapted":
        """As an engine has its model."""
        return self

    base_model = module

    def disable_adapter_layers(self) -> None:
        self.adds = 0.0

    def enable_adapter_layers(self) -> None:
        self.adds = 1.0

    def forward(self, input_ids: torch.Tensor, **more: Any) -> Answer:  # noqa: ANN401
        return Answer(super().forward(input_ids, **more).logits + self.adds * torch.eye(5)[0])


def test_the_reference_of_adapters_is_the_base_and_leaves_them_on() -> None:
    model, batch = Adapted(2), batch_of(*PAIRS)
    adapted = log_probabilities(model, batch)

    assert torch.equal(disabled_adapters(model, 1.0)(batch), reference(batch))
    assert torch.equal(log_probabilities(model, batch), adapted)
    assert model.training


CHATS = [
    Tokens([1, 2, 3, 4], [False, False, True, True]),
    Tokens([4, 3, 2], [False, True, True]),
    Tokens([2, 2], [False, False]),  # cut off before the assistant speaks
    answer(4, 1, 4, 1),
]


METHODS = {
    "supervised": SupervisedLoss(),
    "dpo": DpoLoss(Dpo(beta=0.5), reference),
    "ipo": DpoLoss(Dpo(beta=0.5, loss="ipo"), reference),
    "orpo": OrpoLoss(OrpoOptions(beta=0.3)),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("micro", "world"), [(1, 1), (2, 2)])
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
