"""Recipes: every number filled in, and the parameter counts of models that everybody knows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.choices import Format
from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.training.recipe import Auto, Hyperparameters, Recipe, Training, resolve
from trainer.contract import Dpo, Lora, Reinforcement

LORA = Lora(rank=16, alpha=32, dropout=0.0)
DPO = Dpo(beta=0.1)
PREFERRING = Training(method="dpo", dpo=DPO)
REWARDING = Training(method="reward")
GRPO = Reinforcement(algorithm="grpo", grader="{}", answers=8, max_answer_tokens=256)


def config(model_type: str, shape: str, **members: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return a config.json of "hidden layers heads kv_heads intermediate vocabulary"."""
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    )
    numbers = dict(zip(names, map(int, shape.split()), strict=True))
    return {"model_type": model_type, "max_position_embeddings": 4096, **numbers, **members}


LLAMA_3_8B = config("llama", "4096 32 32 8 14336 128256")

ARCH = Architecture.from_config(LLAMA_3_8B)


def recipe(
    hyper: Hyperparameters | None = None,
    training: Training | None = None,
    *,
    examples: int = 1000,
    world: int = 1,
) -> Recipe:
    return resolve(
        hyper or Hyperparameters(),
        training or Training(),
        examples=examples,
        arch=ARCH,
        world=world,
    )


def test_lora_on_every_linear_layer_has_as_many_parameters_as_peft_says() -> None:
    # peft prints 41,943,040 trainable parameters for Llama-3-8B, r=16, all-linear.
    assert ARCH.lora_parameters(16) == 41_943_040


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"model_type": None}, "llama, mistral"),
        ({"hidden_size": "4096"}, "hidden_size '4096'"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers 0"),
    ],
)
def test_an_unknown_architecture_is_refused_by_name(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidRequest, match=expected) as refused:
        Architecture.from_config(LLAMA_3_8B | change)

    assert (refused.value.code, refused.value.param) == ("unsupported_model", "model")


def test_the_users_numbers_are_kept() -> None:
    resolved = recipe(Hyperparameters(batch_size=32, learning_rate_multiplier=2.0, n_epochs=4))

    assert (resolved.global_batch, resolved.n_epochs, resolved.total_steps) == (32, 4, 125)
    assert resolved.learning_rate == 2e-5
    assert resolved.warnings == ()


@pytest.mark.parametrize(("examples", "epochs"), [(50_000, 3), (50_001, 1)])
def test_a_small_file_is_read_three_times_and_a_large_one_once(examples: int, epochs: int) -> None:
    assert recipe(Hyperparameters(n_epochs="auto"), examples=examples).n_epochs == epochs


@pytest.mark.parametrize(
    ("training", "full_rate", "adapters", "row_format"),
    [
        (Training(), 1e-5, 2e-4, Format.CHAT),
        (PREFERRING, 1e-6, 1e-5, Format.PREFERENCE),
        (Training(method="orpo"), 5e-6, 5e-5, Format.PREFERENCE),
        (REWARDING, 1e-5, 1e-4, Format.PREFERENCE),
        (Training(method="classification"), 1e-5, 1e-4, Format.LABELLED),
        (Training(method="reinforcement", reinforcement=GRPO), 1e-6, 1e-5, Format.PROMPT),
    ],
)
def test_each_method_has_its_usual_learning_rate_and_format(
    training: Training, full_rate: float, adapters: float, row_format: Format
) -> None:
    full, adapted = (recipe(training=replace(training, lora=lora)) for lora in (None, LORA))

    assert (full.learning_rate, full.method, full.format) == (
        full_rate,
        training.method,
        row_format,
    )
    assert adapted.learning_rate == adapters


def test_a_learning_rate_that_is_asked_for_is_taken() -> None:
    assert recipe(training=Training(learning_rate=3e-5)).learning_rate == 3e-5


def test_a_base_model_that_mixes_packed_rows_is_refused_to_pack() -> None:
    unpacked = replace(ARCH, packs=False)
    with pytest.raises(InvalidRequest, match="left out with this base model") as mixing:
        resolve(Hyperparameters(), Training(packing=True), examples=10, arch=unpacked)

    assert mixing.value.param == "training.packing"
    assert not resolve(Hyperparameters(), Training(), examples=10, arch=unpacked).packing
    assert recipe(training=replace(PREFERRING, packing=True)).packing


def test_warm_up_takes_three_per_cent_of_the_steps_but_never_all() -> None:
    hyperparameters = Hyperparameters(batch_size=1, n_epochs=1)

    assert recipe(hyperparameters, examples=1000).warmup_steps == 30
    assert recipe(hyperparameters, examples=1).warmup_steps == 0


def test_a_batch_is_rounded_up_to_what_the_world_shares_out() -> None:
    hyperparameters = Hyperparameters(batch_size=20)

    resolved = recipe(hyperparameters, Training(micro_batch=2), world=8)

    assert (resolved.batch_size, resolved.global_batch) == (20, 32)
    assert "32, not 20" in resolved.warnings[0]
    assert resolved.learning_rate == recipe().learning_rate
    alone = recipe(world=24)
    assert (alone.global_batch, alone.warnings) == (24, ()), "an automatic batch: without a word"


def test_rows_are_at_most_as_long_as_the_base_model_takes() -> None:
    short = replace(ARCH, max_positions=512)
    resolved = resolve(Hyperparameters(), Training(), examples=10, arch=short)

    assert resolved.max_seq_len == 512


def test_an_empty_file_cannot_be_trained_on() -> None:
    with pytest.raises(InvalidRequest, match="no examples"):
        recipe(examples=0)


@given(
    examples=st.integers(1, 10**7),
    world=st.integers(1, 512),
    batch=st.one_of(st.just("auto"), st.integers(1, 1024)),
    micro_batch=st.one_of(st.none(), st.integers(1, 16)),
)
def test_every_recipe_covers_every_epoch_and_divides_evenly(
    examples: int, world: int, batch: int | Auto, micro_batch: int | None
) -> None:
    hyper = Hyperparameters(batch_size=batch)

    resolved = recipe(hyper, Training(micro_batch=micro_batch), examples=examples, world=world)

    assert resolved.global_batch % (world * (micro_batch or 1)) == 0
    assert resolved.global_batch >= resolved.batch_size
    rows = examples * resolved.n_epochs
    assert rows <= resolved.total_steps * resolved.global_batch < rows + resolved.global_batch
    assert 0 <= resolved.warmup_steps < resolved.total_steps
    assert resolved.eval_steps >= 1


def test_more_milestones_than_are_kept_are_refused_with_what_would_do() -> None:
    hyper = Hyperparameters(n_epochs=1, batch_size=1)

    resolved = recipe(hyper, Training(milestone_every_steps=10), examples=1000)
    with pytest.raises(InvalidRequest, match=r"Make it 10 or more\.") as refused:
        recipe(hyper, Training(milestone_every_steps=9), examples=1000)

    assert resolved.milestone_every_steps == 10
    assert refused.value.param == "training.milestone_every_steps"
