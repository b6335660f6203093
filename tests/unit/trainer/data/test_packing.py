"""Packed sequences are trained as if each stood alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from rendering.tokens import Tokens
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.data.batch import IGNORED, Batch, packed, padded
from trainer.methods.forward import log_probabilities
from trainer.methods.supervised import SupervisedLoss
from trainer.model import attention
from trainer.model.base_model import load_model

ROWS = [
    Tokens([5, 6, 7, 8, 9], [False, False, True, True, True]),
    Tokens([4, 3], [False, True]),
    Tokens([2, 2], [False, False]),  # cut off before the assistant speaks
    Tokens([9, 8, 7, 6, 5, 4, 3], [False, True, True, False, False, True, True]),
]


Loaded = dict[bool, Any]


@pytest.fixture(scope="module")
def models(base: Path) -> Loaded:
    """Load the tiny model in fp32 without dropout, once with padding and once with packing."""
    plain = replace(SPEC, precision="fp32")
    return {
        p: load_model(base, replace(plain, packing=p), {}, pad_id=0).eval() for p in (False, True)
    }


def test_sequences_stand_one_after_the_other_and_positions_begin_anew() -> None:
    batch = packed(ROWS[:2], pad_id=0)

    assert batch.ids.tolist() == [[5, 6, 7, 8, 9, 4, 3]]
    assert batch.positions is not None
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    assert batch.labels.tolist() == [[IGNORED, 7, 8, 9, IGNORED, 3, IGNORED]]
    assert batch.sequence.tolist() == [[0, 0, 0, 0, 0, 1, 1]]
    assert (batch.sequences, batch.targets) == (2, padded(ROWS[:2], pad_id=0).targets)


def test_loss_and_gradients_are_those_of_padding(models: Loaded) -> None:
    loss, gradients = _trained(models[False], padded(ROWS, 0))

    packed_loss, packed_gradients = _trained(models[True], packed(ROWS, 0))

    assert packed_loss == pytest.approx(loss, rel=1e-6)
    for name, gradient in gradients.items():
        assert torch.allclose(packed_gradients[name], gradient, atol=1e-5), name


@pytest.mark.parametrize("rows", [[], [ROWS[2]]])
def test_a_micro_batch_without_a_target_is_zero_and_moves_nothing(
    rows: list[Tokens], models: Loaded
) -> None:
    loss, gradients = _trained(models[True], packed(rows, pad_id=0, least=2))

    assert loss == 0.0
    assert not any(gradient.any() for gradient in gradients.values())


def test_a_sliding_window_ends_where_it_ends_without_packing() -> None:
    torch.manual_seed(0)
    config = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 3}
    model = MistralForCausalLM(MistralConfig(**config, **heads)).eval()
    plain = log_probabilities(model, padded(ROWS, 0))
    model.set_attn_implementation(attention.NAME)

    assert torch.allclose(log_probabilities(model, packed(ROWS, 0)), plain, atol=1e-5)


def test_attention_of_another_kind_is_refused(models: Loaded) -> None:
    ones = torch.ones(1, 2, 4, 8)
    layer = models[True].model.layers[0].self_attn

    with pytest.raises(ValueError, match="LlamaAttention cannot take packed sequences"):
        attention.packed_attention(layer, ones, ones, ones, None)
    with pytest.raises(ValueError, match="switch packing off"):
        attention.packed_attention(layer, ones, ones, ones, None, lengths=(4,), softcap=50.0)


def _trained(model: Any, batch: Batch) -> tuple[float, dict[str, torch.Tensor]]:  # noqa: ANN401
    model.zero_grad()
    loss = SupervisedLoss().scores(model, batch).loss
    loss.backward()
    return loss.item(), {
        n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
    }
