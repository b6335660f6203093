"""The losses of reward models, of pairs and of rankings, and the model itself."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.contract import Lora, Ranked
from trainer.data import tokenizing
from trainer.data.batch import Batch, padded
from trainer.data.prefetch import evaluation_batches
from trainer.data.tokens import NO_TOKENS, TokenizedFile, TokenizedOnDemand
from trainer.export.companion_files import set_pad_token
from trainer.export.hf_folder import merge_adapters
from trainer.methods.reward import RankingLoss, RewardLoss, margin_at
from trainer.model.base_model import load_model
from trainer.model.tokenizer import load_tokenizer
from trainer.sample_data.tiny_chats import write_preferences, write_rankings

TOKENIZER = tiny_tokenizer()
SAID = Tokens([1, 9], [False, True])
RANKED = replace(SPEC, method="reward", ranked=Ranked(), answers_per_row=3, total_steps=9)
SCORES = st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=6)


def at_margin(margin: float, answers: int = 3) -> RankingLoss:
    settings = Ranked(margin_start=margin, margin_end=margin)
    return RankingLoss(settings, answers, total_steps=2)


def by_hand(scores: list[float], margin: float) -> float:
    """Return the loss by its formula, term by term."""
    return sum(
        max(0.0, margin - (scores[i] - scores[j])) * math.log(j - i + 1)
        for j in range(len(scores))
        for i in range(j)
    )


def test_equal_scores_cost_the_margin_times_the_weights() -> None:
    scores = at_margin(0.1).scores(says(0.0, 0.0, 0.0), batch_of(SAID, SAID, SAID))

    assert scores.loss.item() == pytest.approx(0.1 * (2 * math.log(2) + math.log(3)))
    assert scores.loss.item() == pytest.approx(0.2484907)
    assert scores.correct.item() == 0.0


@given(SCORES, st.floats(0.0, 2.0))
def test_a_row_costs_what_the_formula_says(scores: list[float], margin: float) -> None:
    method = at_margin(margin, answers=len(scores))
    step_scores = method.scores(says(*scores), batch_of(*[SAID] * len(scores)))

    assert step_scores.loss.item() == pytest.approx(by_hand(scores, margin), abs=1e-4)


def test_the_order_of_pairs_and_rows_adds_up() -> None:
    sequences = batch_of(*[SAID] * 6)
    method = at_margin(0.5)

    scores = method.scores(says(2.0, 1.0, 1.25, 0.0, 0.0, 0.0), sequences)

    expected = by_hand([2.0, 1.0, 1.25], 0.5) + by_hand([0.0, 0.0, 0.0], 0.5)
    assert scores.loss.item() == pytest.approx(expected)
    assert scores.correct.item() == pytest.approx(2 / 3)
    assert scores.margin == pytest.approx((2.0 - 1.25) / 2)
    assert method.units(sequences) == 2


def test_answers_that_are_not_there_count_for_nothing() -> None:
    method = at_margin(0.5)
    short, alone = batch_of(SAID, SAID, NO_TOKENS), batch_of(SAID, CUT_OFF, NO_TOKENS)

    scores = method.scores(says(1.0, 0.75, 9.0), short)

    assert [method.units(b) for b in (short, alone)] == [1, 0]
    assert scores.loss.item() == pytest.approx(by_hand([1.0, 0.75], 0.5))
    assert (scores.correct.item(), scores.margin) == (1.0, pytest.approx(0.25))
    nothing = method.scores(says(1.0, 9.0, 9.0), alone)
    assert (nothing.loss.item(), nothing.correct.item(), nothing.margin) == (0.0, 0.0, 0.0)
    gap = method.scores(says(1.0, 9.0, 0.0), batch_of(SAID, CUT_OFF, SAID))
    assert gap.margin == pytest.approx(1.0)


def test_the_margin_rises_in_a_straight_line_and_follows_from_the_step() -> None:
    margins = [margin_at(Ranked(), step, 9) for step in (1, 3, 5, 9, 10)]
    fresh, resumed = (RankingLoss(Ranked(), 2, 9) for _ in range(2))
    for step in range(1, 6):
        fresh.prepare_step(step)
    resumed.prepare_step(5)
    pair = batch_of(SAID, SAID)

    assert margins == pytest.approx([0.1, 0.2, 0.3, 0.5, 0.5])
    assert margin_at(Ranked(), 1, 1) == 0.1
    losses = [m.scores(says(0.0, 0.0), pair).loss.item() for m in (fresh, resumed)]
    assert losses == pytest.approx([0.3 * math.log(2)] * 2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rankings of two and three answers in turns."""
    path = tmp_path / "ranked.jsonl"
    write_rankings(path, rows=6, seed=1)
    return path


def test_rows_of_fewer_answers_are_filled_with_nothing_in_batches_and_caches(
    data: Path, tmp_path: Path
) -> None:
    fresh = TokenizedOnDemand(data, TOKENIZER, RANKED)
    tokenizing.write_tokens(fresh, tmp_path / "tokens.safetensors")
    cached = TokenizedFile(tmp_path / "tokens.safetensors")

    missing = [n for n in range(len(fresh)) if fresh[n] == NO_TOKENS]
    batches = list(evaluation_batches(fresh, 0, RANKED, ME))

    assert (len(fresh), missing) == (18, [2, 8, 14])
    assert [cached[n] for n in range(18)] == [fresh[n] for n in range(18)]
    assert [b.sequences for b in batches] == [6, 6, 6]
    assert [RankingLoss(Ranked(), 3, 9).units(b) for b in batches] == [2, 2, 2]
    planned_for_less = TokenizedOnDemand(data, TOKENIZER, replace(RANKED, answers_per_row=2))
    with pytest.raises(ValueError, match=r"line 2: 3 answers; the run was planned for 2"):
        planned_for_less[2]


def test_preferences_are_rankings_of_two(tmp_path: Path) -> None:
    path, ranked = tmp_path / "pairs.jsonl", tmp_path / "ranked.jsonl"
    write_preferences(path, rows=2, seed=1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    outputs = [[row.pop("preferred_output"), row.pop("non_preferred_output")] for row in rows]
    pairs = zip(rows, outputs, strict=True)
    ranked.write_text("\n".join(json.dumps(r | {"ranked_outputs": o}) for r, o in pairs))

    spec = replace(RANKED, answers_per_row=2)
    preferences, rankings = (TokenizedOnDemand(file, TOKENIZER, spec) for file in (path, ranked))

    assert [rankings[n] for n in range(4)] == [preferences[n] for n in range(4)]


REWARD = replace(SPEC, method="reward", precision="fp32")
LORA = Lora(rank=4, alpha=8, dropout=0.0)
SHORT, LONG = Tokens([1, 9], [False, True]), Tokens([1, 7, 8, 9], [False, True, True, True])
CUT_OFF = Tokens([1, 1], [False, False])  # before the assistant speaks


def says(*rewards: float) -> Callable[..., Answer]:
    """Return a model with these rewards."""
    return lambda **_: Answer(torch.tensor(rewards).unsqueeze(1))


def batch_of(*sequences: Tokens) -> Batch:
    """Preferred and other in turns."""
    return padded(list(sequences), pad_id=0, least=2)


def test_a_pair_costs_what_bradley_and_terry_say() -> None:
    scores = RewardLoss().scores(says(2.0, 0.5, -1.0, 1.0), batch_of(LONG, SHORT, SHORT, LONG))

    expected = math.log1p(math.exp(-1.5)) + math.log1p(math.exp(2.0))
    assert scores.loss.item() == pytest.approx(expected)
    assert scores.correct == 1
    assert scores.margin == pytest.approx(1.5 - 2.0)


def test_padding_and_what_is_cut_before_its_answer_count_for_nothing() -> None:
    reward = RewardLoss()
    beside = batch_of(LONG, SHORT, CUT_OFF, CUT_OFF)

    assert [reward.units(b) for b in (batch_of(), batch_of(CUT_OFF, CUT_OFF), beside)] == [0, 0, 1]
    assert reward.scores(says(0.0, 3.0), batch_of()).loss.item() == 0.0
    scores = reward.scores(says(2.0, 0.5, 9.0, 9.0), beside)
    assert scores.loss.item() == pytest.approx(math.log1p(math.exp(-1.5)))


def test_where_padding_is_the_end_token_a_reserved_one_pads_and_is_exported(
    base: Path, tmp_path: Path
) -> None:
    """Else the end of an answer, which it must judge, would pass for padding."""
    unpadded = shutil.copytree(base, tmp_path / "base")
    config = unpadded / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pad_token": None}))
    usual, own = (load_tokenizer(unpadded, method) for method in ("supervised", "reward"))

    set_pad_token(unpadded, own.pad_token)

    assert usual.pad_token_id == usual.eos_token_id
    assert own.pad_token == "<|pad|>"
    assert AutoTokenizer.from_pretrained(unpadded).pad_token == "<|pad|>"


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name
def test_a_head_is_trained_whole_beside_adapters_and_exported_as_it_was_trained(
    base: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    model = load_model(base, replace(REWARD, lora=LORA), {}, pad_id=5).eval()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)

    weights = merge_adapters(model, dict(model.named_parameters()))
    model.get_base_model().save_pretrained(tmp_path, state_dict=weights)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()

    assert [name for name in trained if ".lora_" not in name] == [
        "base_model.model.score.modules_to_save.default.weight"
    ]
    assert set(weights) == {name for name, _ in loaded.named_parameters()}
    assert torch.allclose(_rewards(loaded), _rewards(model), atol=1e-5)
    assert loaded.config.pad_token_id == 5, "it judges the last token that is another one"


def _rewards(model: Any) -> torch.Tensor:  # noqa: ANN401
    batch = batch_of(SHORT, LONG)
    with torch.no_grad():
        return model(input_ids=batch.ids, attention_mask=batch.attention).logits
