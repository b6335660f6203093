"""Run spec -> DeepSpeed's configuration."""

from dataclasses import replace

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import engine_config
from trainer.engine.deepspeed_engine import build_config, parameter_groups


@pytest.mark.parametrize(("world", "accumulation"), [(1, 8), (2, 4), (3, 3), (16, 1)])
def test_accumulation_keeps_the_global_batch(world: int, accumulation: int) -> None:
    config = build_config(SPEC, world)

    assert config["gradient_accumulation_steps"] == accumulation
    assert config["train_micro_batch_size_per_gpu"] == SPEC.micro_batch


def test_the_trainer_uses_the_configuration_that_the_service_shows() -> None:
    assert build_config(SPEC, 2) == engine_config(SPEC, 2, "cpu")


def test_host_memory_is_pinned_for_gpus_only() -> None:
    spec = replace(SPEC, offload="optimizer")
    on_gpus, on_cpus = (engine_config(spec, 2, device) for device in ("cuda", "cpu"))

    assert on_gpus["zero_optimization"]["offload_optimizer"]["pin_memory"]
    assert not on_cpus["zero_optimization"]["offload_optimizer"]["pin_memory"]


def test_adamw_is_torchs_and_there_is_no_scheduler() -> None:
    config = build_config(SPEC, 2)

    assert config["optimizer"]["params"]["torch_adam"] is True
    assert config["optimizer"]["params"]["betas"] == [0.9, 0.95]
    assert "scheduler" not in config


def test_gradients_are_clipped_and_weights_decay_as_the_run_spec_says() -> None:
    spec = replace(SPEC, max_grad_norm=0.7, weight_decay=0.3, learning_rate=2e-4)

    config = build_config(spec, 2)

    assert config["gradient_clipping"] == 0.7
    assert config["optimizer"]["params"]["weight_decay"] == 0.3
    assert config["optimizer"]["params"]["lr"] == 2e-4


def test_bf16_gradients_are_summed_in_fp32() -> None:
    assert build_config(SPEC, 2)["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "data_types" not in build_config(replace(SPEC, precision="fp32"), 2)


@pytest.mark.parametrize(
    ("precision", "asked", "used"), [("bf16", 1, 2), ("bf16", 2, 2), ("bf16", 3, 3), ("fp32", 1, 1)]
)
def test_bf16_has_its_gradients_sharded_from_stage_1_on(
    precision: str, asked: int, used: int
) -> None:
    spec = replace(SPEC, precision=precision, zero_stage=asked)

    assert build_config(spec, 2)["zero_optimization"]["stage"] == used


def test_bf16_without_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="bf16 needs ZeRO stage 1"):
        build_config(replace(SPEC, zero_stage=0), 2)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="'fp8' is not known"):
        build_config(replace(SPEC, precision="fp8"), 2)


def test_norms_and_biases_are_not_decayed_and_frozen_weights_not_trained() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    model[2].requires_grad_(False)

    groups = parameter_groups(model, weight_decay=0.1)

    assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(1, 0.1), (3, 0.0)]
