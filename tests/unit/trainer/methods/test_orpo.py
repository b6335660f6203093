"""Odds ratio preference optimization: its loss, and what was reported of other implementations."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract.methods import MethodRequest
from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import CUT_OFF, PAIRS, Answer, Bigram, answer, batch_of
from trainer.data.batch import packed, padded
from trainer.methods.orpo import OrpoLoss, OrpoOptions, log_odds

BETA = 0.3
ORPO = OrpoLoss(OrpoOptions(beta=BETA))


def mean_log_probability(table: torch.Tensor, tokens: Tokens) -> float:
    """By hand: the mean over the trained tokens, each after the one before."""
    rows = torch.log_softmax(table.detach().double(), dim=1)
    steps = zip(tokens.ids, tokens.ids[1:], tokens.trained[1:], strict=False)
    found = [float(rows[a, b]) for a, b, trained in steps if trained]
    return sum(found) / len(found)


def literal(pair: tuple[Tokens, Tokens], model: Bigram) -> tuple[float, float]:
    """Return the loss as the paper writes it, and the margin as TRL does."""
    preferred, other = (mean_log_probability(model.table, tokens) for tokens in pair)
    odds = [math.exp(p) / (1 - math.exp(p)) for p in (preferred, other)]
    ratio = math.log(odds[0] / odds[1])
    return -preferred - BETA * math.log(1 / (1 + math.exp(-ratio))), BETA * (preferred - other)


class Keeps(Bigram):
    """Computes the logits that are asked for, as language models do."""

    def forward(self, input_ids: torch.Tensor, **more: Any) -> Answer:  # noqa: ANN401
        return Answer(super().forward(input_ids).logits[:, more["logits_to_keep"]])


def certain(logit: float) -> Bigram:
    """Return a model that is certain of token 2, and then of 3."""
    model = Bigram(1)
    with torch.no_grad():
        model.table[1, 2] = model.table[2, 3] = logit
    return model


def test_the_loss_is_that_of_the_paper() -> None:
    model = Bigram(1)

    found = ORPO.scores(model, batch_of(*PAIRS))

    losses, margins = zip(*(literal(pair, model) for pair in PAIRS), strict=True)
    assert found.loss.item() == pytest.approx(sum(losses), rel=1e-6)
    assert found.margin.item() == pytest.approx(sum(margins), rel=1e-5)  # type: ignore[union-attr]
    assert found.correct.item() == sum(m > 0 for m in margins)


def test_the_gradient_reaches_the_model_through_both_answers() -> None:
    """mlx-lm-lora 67: it was zero."""
    model = Bigram(1)
    ORPO.scores(model, batch_of((answer(2), answer(3)))).loss.backward()

    assert model.table.grad is not None
    assert model.table.grad[1, 2] < 0 < model.table.grad[1, 3]


@pytest.mark.parametrize("logit", [20.0, 1e4])
@pytest.mark.parametrize("turned", [False, True])
def test_a_model_that_is_certain_has_a_finite_loss_and_gradient(
    logit: float, *, turned: bool
) -> None:
    """TRL 1473, 2564, 3237: log1p(-exp(0)) is minus infinity, and its gradient no number."""
    model, pair = certain(logit), (answer(2, 3), answer(4))
    found = ORPO.scores(model, batch_of(pair[::-1] if turned else pair))
    found.loss.backward()

    assert math.isfinite(found.loss.item())
    assert model.table.grad is not None
    assert model.table.grad.isfinite().all()


@given(st.floats(min_value=-60, max_value=-1e-5))
def test_log_odds_have_no_bias(logp: float) -> None:
    """ColossalAI 6407: a constant of 1.0001 kept the logarithm's argument above zero."""
    exact = logp - math.log(-math.expm1(logp))

    assert log_odds(torch.tensor(logp)).item() == pytest.approx(exact, rel=1e-4, abs=1e-5)


def test_log_probabilities_in_sixteen_bits_are_scored_in_thirty_two() -> None:
    """unsloth-zoo 830: a smallest number of 1e-12 is zero in fp16."""
    half = Bigram(1).half()
    with torch.no_grad():
        half.table[1, 2] = 60.0
    found = ORPO.scores(half, batch_of((answer(2), answer(3))))

    assert found.loss.dtype == torch.float32
    assert math.isfinite(found.loss.item())


def test_tokens_of_the_prompt_are_not_trained() -> None:
    """TRL 1516 and 1676; OpenRLHF 294: the prompt of the rejected answer was not masked."""
    short, long = ((1,), (3, 2, 4, 1))
    found = [
        ORPO.scores(Bigram(1), batch_of((answer(2, asked=a), answer(3, asked=a)))).loss.item()
        for a in (short, long)
    ]

    assert found[0] == pytest.approx(found[1])


def test_padding_with_a_token_that_ends_answers_trains_that_token_only_where_it_ends_one() -> None:
    """TRL 1625: the token that pads is the one that ends, and both were masked, or neither."""
    model, pairs = Bigram(1), [(answer(2, 4), answer(3, 3, 3, 4))]

    found = [ORPO.scores(model, batch_of(*pairs, pad_id=pad)).loss.item() for pad in (0, 4)]

    assert found == [pytest.approx(literal(pairs[0], model)[0], rel=1e-6)] * 2


def test_pairs_that_are_padding_or_cut_before_their_answers_count_for_nothing() -> None:
    """TRL 1473 and 5339: a prompt beyond the longest row divided by no token."""
    model = Bigram(1)
    empty, cut = batch_of(), batch_of((CUT_OFF, CUT_OFF))
    alone = batch_of((PAIRS[0][0], CUT_OFF))
    beside = batch_of(PAIRS[0], (CUT_OFF, CUT_OFF))

    assert [ORPO.units(batch) for batch in (empty, cut, alone, beside)] == [0, 0, 0, 1]
    for batch in (empty, cut, alone):
        found = ORPO.scores(model, batch)
        found.loss.backward()
        assert (found.loss.item(), found.correct.item()) == (0.0, 0)
    assert model.table.grad is not None
    assert not model.table.grad.any()
    whole = ORPO.scores(model, batch_of(PAIRS[0])).loss
    assert ORPO.scores(model, beside).loss.item() == pytest.approx(whole.item())


def test_packed_pairs_have_the_loss_of_padded_ones() -> None:
    rows = [tokens for pair in PAIRS for tokens in pair]

    found = ORPO.scores(Keeps(1), packed(rows, pad_id=0, least=2)).loss

    assert found.item() == pytest.approx(ORPO.scores(Bigram(1), padded(rows, pad_id=0)).loss.item())


@pytest.mark.parametrize("beta", [0.0, 2.1, "auto"])
def test_a_beta_out_of_bounds_is_refused(beta: object) -> None:
    with pytest.raises(ValueError, match="beta"):
        MethodRequest.model_validate({"type": "orpo", "orpo": {"hyperparameters": {"beta": beta}}})
