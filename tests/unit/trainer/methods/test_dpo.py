"""The losses of supervised training, DPO and ORPO; what was reported of other programs."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract.methods import MethodRequest
from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import CUT_OFF, PAIRS, Answer, Bigram, answer, batch_of
from trainer.contract import Dpo
from trainer.contract import Dpo as Settings
from trainer.data.batch import Batch, packed, padded
from trainer.methods.dpo import DpoLoss
from trainer.methods.forward import log_probabilities
from trainer.methods.interface import scaled_loss
from trainer.methods.orpo import OrpoLoss, OrpoOptions, log_odds
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

    scores = dpo.scores(model, batch_of(*PAIRS))

    margins = [beta * (first - second) for first, second in (gains(model, p) for p in PAIRS)]
    right = [math.log1p(math.exp(-m)) for m in margins]
    wrong = [math.log1p(math.exp(m)) for m in margins]
    expected = (1 - smoothing) * sum(right) + smoothing * sum(wrong)
    assert scores.loss.item() == pytest.approx(expected, rel=1e-6)
    assert scores.margin.item() == pytest.approx(sum(margins), rel=1e-5)  # type: ignore[union-attr]
    assert scores.correct.item() == sum(m > 0 for m in margins)
    assert dpo.scores(Bigram(2), batch_of(*PAIRS)).correct == 0, "its reference prefers neither"


def test_the_ipo_loss_is_a_square_around_half_of_one_over_beta() -> None:
    model, beta = Bigram(1), 0.3

    scores = DpoLoss(Settings(beta=beta, loss="ipo"), reference).scores(model, batch_of(*PAIRS))

    expected = 0.0
    for pair in PAIRS:
        means = [g / (len(t.ids) - 1) for g, t in zip(gains(model, pair), pair, strict=True)]
        expected += (means[0] - means[1] - 1 / (2 * beta)) ** 2
    assert scores.loss.item() == pytest.approx(expected, rel=1e-6)


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

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Answer:  # noqa: ANN401
        return Answer(super().forward(input_ids, **options).logits + self.adds * torch.eye(5)[0])


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
    full_batch, big, small = _batch(rows), Bigram(), Bigram()
    units = method.units(full_batch)
    scaled_loss(method.scores(big, full_batch).loss, units, 1).backward()
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

    scores = SupervisedLoss().scores(lambda **_: Answer(logits), batch)

    assert scores.loss.item() == pytest.approx(math.log(4 / 3) + math.log(10))
    assert scores.correct.item() == 1


def test_a_step_without_trained_tokens_is_zero_and_moves_nothing() -> None:
    model = Bigram()
    loss = scaled_loss(SupervisedLoss().scores(model, padded([], 0)).loss, 0, 2)
    loss.backward()

    assert loss.item() == 0.0
    assert model.table.grad is not None
    assert not model.table.grad.any()


BETA = 0.3
ORPO = OrpoLoss(OrpoOptions(beta=BETA))


def mean_log_probability(table: torch.Tensor, tokens: Tokens) -> float:
    """By hand: the mean over the trained tokens, each after the one before."""
    rows = torch.log_softmax(table.detach().double(), dim=1)
    steps = zip(tokens.ids, tokens.ids[1:], tokens.trained[1:], strict=False)
    log_probabilities = [float(rows[a, b]) for a, b, trained in steps if trained]
    return sum(log_probabilities) / len(log_probabilities)


def literal(pair: tuple[Tokens, Tokens], model: Bigram) -> tuple[float, float]:
    """Return the loss as the paper writes it, and the margin as TRL does."""
    preferred, rejected = (mean_log_probability(model.table, tokens) for tokens in pair)
    odds = [math.exp(p) / (1 - math.exp(p)) for p in (preferred, rejected)]
    ratio = math.log(odds[0] / odds[1])
    return -preferred - BETA * math.log(1 / (1 + math.exp(-ratio))), BETA * (preferred - rejected)


class Keeps(Bigram):
    """Computes the logits that are asked for, as language models do."""

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Answer:  # noqa: ANN401
        return Answer(super().forward(input_ids).logits[:, options["logits_to_keep"]])


def certain(logit: float) -> Bigram:
    """Return a model that is certain of token 2, and then of 3."""
    model = Bigram(1)
    with torch.no_grad():
        model.table[1, 2] = model.table[2, 3] = logit
    return model


def test_the_loss_is_that_of_the_paper() -> None:
    model = Bigram(1)

    scores = ORPO.scores(model, batch_of(*PAIRS))

    losses, margins = zip(*(literal(pair, model) for pair in PAIRS), strict=True)
    assert scores.loss.item() == pytest.approx(sum(losses), rel=1e-6)
    assert scores.margin.item() == pytest.approx(sum(margins), rel=1e-5)  # type: ignore[union-attr]
    assert scores.correct.item() == sum(m > 0 for m in margins)


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
    scores = ORPO.scores(model, batch_of(pair[::-1] if turned else pair))
    scores.loss.backward()

    assert math.isfinite(scores.loss.item())
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
    scores = ORPO.scores(half, batch_of((answer(2), answer(3))))

    assert scores.loss.dtype == torch.float32
    assert math.isfinite(scores.loss.item())


def test_tokens_of_the_prompt_are_not_trained() -> None:
    """TRL 1516 and 1676; OpenRLHF 294: the prompt of the rejected answer was not masked."""
    short, long = ((1,), (3, 2, 4, 1))
    losses = [
        ORPO.scores(Bigram(1), batch_of((answer(2, prompt=a), answer(3, prompt=a)))).loss.item()
        for a in (short, long)
    ]

    assert losses[0] == pytest.approx(losses[1])


def test_padding_with_a_token_that_ends_answers_trains_that_token_only_where_it_ends_one() -> None:
    """TRL 1625: the token that pads is the one that ends, and both were masked, or neither."""
    model, pairs = Bigram(1), [(answer(2, 4), answer(3, 3, 3, 4))]

    losses = [ORPO.scores(model, batch_of(*pairs, pad_id=pad)).loss.item() for pad in (0, 4)]

    assert losses == [pytest.approx(literal(pairs[0], model)[0], rel=1e-6)] * 2


@pytest.mark.parametrize("method", [DpoLoss(Settings(beta=0.1), reference), ORPO])
def test_pairs_that_are_padding_or_cut_before_their_answers_count_for_nothing(
    method: DpoLoss | OrpoLoss,
) -> None:
    """TRL 1473 and 5339: a prompt beyond the longest row divided by no token."""
    model = Bigram(1)
    empty, cut_batch = batch_of(), batch_of((CUT_OFF, CUT_OFF))
    without_rejected = batch_of((PAIRS[0][0], CUT_OFF))
    without_preferred = batch_of((CUT_OFF, PAIRS[0][1]))
    beside = batch_of(PAIRS[0], (CUT_OFF, CUT_OFF))

    assert [
        method.units(batch)
        for batch in (empty, cut_batch, without_rejected, without_preferred, beside)
    ] == [0, 0, 0, 0, 1]
    for batch in (empty, cut_batch, without_rejected, without_preferred):
        scores = method.scores(model, batch)
        scores.loss.backward()
        assert (scores.loss.item(), scores.correct.item()) == (0.0, 0)
    assert model.table.grad is not None
    assert not model.table.grad.any()
    complete = method.scores(model, batch_of(PAIRS[0])).loss
    assert method.scores(model, beside).loss.item() == pytest.approx(complete.item())


def test_packed_pairs_have_the_loss_of_padded_ones() -> None:
    rows = [tokens for pair in PAIRS for tokens in pair]

    loss = ORPO.scores(Keeps(1), packed(rows, pad_id=0, least=2)).loss

    assert loss.item() == pytest.approx(ORPO.scores(Bigram(1), padded(rows, pad_id=0)).loss.item())


@pytest.mark.parametrize("beta", [0.0, 2.1, "auto"])
def test_a_beta_out_of_bounds_is_refused(beta: object) -> None:
    with pytest.raises(ValueError, match="beta"):
        MethodRequest.model_validate({"type": "orpo", "orpo": {"hyperparameters": {"beta": beta}}})
