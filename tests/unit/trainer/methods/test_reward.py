"""The loss of a reward model, and the model itself."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Lora
from trainer.data.batch import Batch, padded
from trainer.export.companion_files import set_pad_token
from trainer.export.hf_folder import merge_adapters
from trainer.methods.reward import RewardLoss
from trainer.model.base_model import load_model
from trainer.model.tokenizer import load_tokenizer

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
    found = RewardLoss().scores(says(2.0, 0.5, -1.0, 1.0), batch_of(LONG, SHORT, SHORT, LONG))

    expected = math.log1p(math.exp(-1.5)) + math.log1p(math.exp(2.0))
    assert found.loss.item() == pytest.approx(expected)
    assert found.correct == 1
    assert found.margin == pytest.approx(1.5 - 2.0)


def test_padding_and_what_is_cut_before_its_answer_count_for_nothing() -> None:
    reward = RewardLoss()
    beside = batch_of(LONG, SHORT, CUT_OFF, CUT_OFF)

    assert [reward.units(b) for b in (batch_of(), batch_of(CUT_OFF, CUT_OFF), beside)] == [0, 0, 1]
    assert reward.scores(says(0.0, 3.0), batch_of()).loss.item() == 0.0
    found = reward.scores(says(2.0, 0.5, 9.0, 9.0), beside)
    assert found.loss.item() == pytest.approx(math.log1p(math.exp(-1.5)))


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
    model = load_model(base, replace(REWARD, lora=LORA), {}, pad_id=0).eval()
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


def _rewards(model: Any) -> torch.Tensor:  # noqa: ANN401
    batch = batch_of(SHORT, LONG)
    with torch.no_grad():
        return model(input_ids=batch.ids, attention_mask=batch.attention).logits
