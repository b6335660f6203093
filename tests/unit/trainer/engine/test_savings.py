"""What saves memory in the trainer changes what is held, and nothing of what is computed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from rendering.tokens import Tokens
from tests.unit.trainer.process.trainer_spec import GRADED, SPEC
from trainer.contract import Lora, RunSpec
from trainer.convert import hf
from trainer.convert.adapters import merge_adapter as merged_of
from trainer.convert.whole import FullParameters
from trainer.data.batch import Batch, packed, padded
from trainer.export.hf_folder import _write_model
from trainer.methods.supervised import ChunkedSupervisedLoss, SupervisedLoss
from trainer.model.base_model import freeze_parameters, load_model

QLORA = Lora(rank=4, alpha=8, dropout=0.0, quantized=True)
FP32 = replace(SPEC, precision="fp32")
ROWS = [
    Tokens([5, 6, 7, 8, 9], [False, False, True, True, True]),
    Tokens([4, 3], [False, True]),
    Tokens([2, 2], [False, False]),  # cut off before the assistant speaks
    Tokens([9, 8, 7, 6, 5, 4, 3], [False, True, True, False, False, True, True]),
]
NOTHING = padded([], 0)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft's, of transformers' names


def loaded(base: Path, spec: RunSpec = FP32) -> Any:  # noqa: ANN401 - transformers is untyped here
    torch.manual_seed(3)  # new adapters
    return load_model(base, spec, {}, pad_id=0).eval()


@pytest.fixture(scope="module")
def models(base: Path) -> dict[bool, Any]:
    """Full ones in fp32, with padding and packing."""
    return {p: loaded(base, replace(FP32, packing=p)) for p in (False, True)}


def trained(model: Any) -> set[str]:  # noqa: ANN401
    return {name for name, p in model.named_parameters() if p.requires_grad}


class Saved(FullParameters):
    """What a checkpoint of this model would hold."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._weights = {name: model.get_parameter(name).detach() for name in trained(model)}
        self.shapes = {name: tuple(weight.shape) for name, weight in self._weights.items()}

    def tensor(self, name: str, state: str) -> torch.Tensor:
        """Masters are all that is asked for."""
        assert state == "master"
        return self._weights[name]


# --- The loss in chunks ------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "side_by_side"), [(1, False), (3, True), (100, False)])
def test_losses_and_gradients_in_chunks_are_those_of_all_logits_at_once(
    models: dict[bool, Any], chunk: int, side_by_side: bool
) -> None:
    model = models[side_by_side]
    batch = (packed if side_by_side else padded)(ROWS, 0)

    unchunked, gradients = scored(SupervisedLoss(), model, batch)
    chunked, chunk_gradients = scored(ChunkedSupervisedLoss(model, chunk), model, batch)

    assert chunked == pytest.approx(unchunked, rel=1e-6)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, chunk_gradients[name], rtol=1e-4, atol=1e-5), name


def test_a_batch_without_a_trained_position_costs_nothing_in_chunks_either(
    models: dict[bool, Any],
) -> None:
    (loss, correct), gradients = scored(
        ChunkedSupervisedLoss(models[False], 4), models[False], NOTHING
    )

    assert (loss, correct) == (0.0, 0)
    assert not any(gradient.any() for gradient in gradients.values())


def test_the_head_gives_logits_again_once_the_loss_is_known(models: dict[bool, Any]) -> None:
    model = models[False]
    before = model(input_ids=padded(ROWS, 0).ids).logits

    with torch.no_grad():
        scores = ChunkedSupervisedLoss(model, 2).scores(model, padded(ROWS, 0))

    assert not scores.loss.requires_grad
    assert torch.equal(model(input_ids=padded(ROWS, 0).ids).logits, before)


def test_chunks_are_refused_where_something_happens_to_logits_behind_the_head() -> None:
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = Gemma2Config(vocab_size=8, hidden_size=8, intermediate_size=8, head_dim=8, **shape)

    with pytest.raises(ValueError, match="not for gemma2; leave it out"):
        ChunkedSupervisedLoss(Gemma2ForCausalLM(config), 4)


def scored(
    method: SupervisedLoss | ChunkedSupervisedLoss,
    model: Any,  # noqa: ANN401
    batch: Batch,
) -> tuple[tuple[float, int], dict[str, torch.Tensor]]:
    """(loss, correct) and the gradients."""
    model.zero_grad()
    scores = method.scores(model, batch)
    scores.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return (scores.loss.item(), int(scores.correct)), gradients


# --- Layers that stay --------------------------------------------------------------------------


def test_the_last_layers_are_trained_with_what_is_behind_them(base: Path) -> None:
    trained_names = trained(
        loaded(base, replace(FP32, train_last_n_layers=1, train_embeddings=False))
    )
    beside = trained(loaded(base, replace(FP32, train_last_n_layers=1)))

    assert {name.split(".")[2] for name in trained_names if ".layers." in name} == {"2"}
    assert {name for name in trained_names if ".layers." not in name} == {"model.norm.weight"}
    assert beside - trained_names == {"model.embed_tokens.weight"}  # the head is tied to it


def test_a_head_of_its_own_is_trained_though_the_embeddings_are_not(base: Path) -> None:
    model = loaded(base)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())

    freeze_parameters(model, replace(FP32, train_embeddings=False))

    assert "lm_head.weight" in trained(model)
    assert "model.embed_tokens.weight" not in trained(model)


def test_a_converted_checkpoint_has_what_was_frozen_from_the_base_and_loses_nothing_else(
    base: Path,
) -> None:
    spec = replace(FP32, train_last_n_layers=1, train_embeddings=False)
    model = loaded(base, spec)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    with torch.no_grad():
        for name in trained(model):
            model.get_parameter(name).add_(1.0)

    converted = hf._Model(Saved(model), spec, torch.float32, hf._Base(base))
    converted.require(shapes)

    for name, parameter in model.named_parameters():
        assert torch.equal(converted.read(name), parameter), name
    with pytest.raises(ValueError, match="no file holds "):
        hf._Model(Saved(model), FP32, torch.float32, hf._Base(base)).require(shapes)


def test_more_layers_than_there_are_cannot_be_asked_for(base: Path) -> None:
    with pytest.raises(ValueError, match="has 3 layers: ask for 1 to 3"):
        loaded(base, replace(FP32, train_last_n_layers=4))


# --- A base in four bits -----------------------------------------------------------------------


def test_the_base_is_held_in_four_bits_and_adapters_alone_are_trained(base: Path) -> None:
    model = loaded(base, replace(FP32, lora=QLORA))

    base_weights = {n: p for n, p in model.named_parameters() if n.endswith(".base_layer.weight")}
    assert len(base_weights) == 3 * 7
    assert {p.dtype for p in base_weights.values()} == {torch.uint8}
    assert all(".lora_" in name for name in trained(model))


def test_the_head_of_a_critic_is_new_and_not_in_four_bits(base: Path) -> None:
    learning = replace(GRADED, algorithm="ppo")
    spec = replace(FP32, method="reinforcement", reinforcement=learning, lora=QLORA)

    critic = loaded(base, spec).critic

    dtypes = {n: p.dtype for n, p in critic.named_parameters() if ".score." in n}
    assert set(dtypes.values()) == {torch.float32}
    assert any(name in trained(critic) for name in dtypes)
    assert torch.uint8 in {p.dtype for p in critic.parameters()}


def test_nothing_of_bitsandbytes_is_compiled_and_no_compiler_imported() -> None:
    tried = """
import sys
from trainer.model.precision import import_uncompiled
import_uncompiled()
from bitsandbytes.backends.default import ops
assert ops._dequantize_4bit_compute.__wrapped__
assert "torch._inductor.compile_fx" not in sys.modules
"""

    subprocess.run([sys.executable, "-c", tried], check=True, timeout=60)


def test_evaluation_leaves_the_base_as_it_was_quantized(base: Path) -> None:
    """On CPUs with AVX512-BF16 it would be packed anew, and have no gradients any more."""
    model = loaded(base, replace(FP32, lora=QLORA))
    before = model.get_submodule(UP).base_layer.weight.detach().clone()

    with torch.no_grad():
        model.eval()(input_ids=padded(ROWS, 0).ids)

    layer = model.get_submodule(UP).base_layer
    assert torch.equal(layer.weight, before)
    assert not layer.support_avx512bf16_for_cpu


def test_adapters_are_merged_into_the_base_as_it_came_and_not_as_it_was_quantized(
    base: Path, tmp_path: Path
) -> None:
    spec = replace(FP32, lora=QLORA)
    model = loaded(base, spec)
    with torch.no_grad():
        for name in sorted(trained(model)):
            model.get_parameter(name).normal_(0, 0.05)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    _write_model(model, weights, spec, tmp_path, base)

    exported = AutoModelForCausalLM.from_pretrained(tmp_path)
    original = AutoModelForCausalLM.from_pretrained(base)
    for name, weight in original.named_parameters():
        expected = merged_of(Saved(model), name, weight, QLORA)
        assert torch.equal(exported.get_parameter(name), expected), name
    assert not hasattr(exported.config, "quantization_config")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


UP = "base_model.model.model.layers.0.mlp.up_proj"
