"""Run spec -> DeepSpeed's configuration."""

from dataclasses import replace

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Lora, LossScaling, RunSpec, engine_config
from trainer.engine.deepspeed_engine import build_config, parameter_groups


@pytest.mark.parametrize(("world", "accumulation"), [(1, 8), (2, 4), (3, 3), (16, 1)])
def test_accumulation_keeps_the_global_batch(world: int, accumulation: int) -> None:
    config = build_config(SPEC, world)

    assert config["gradient_accumulation_steps"] == accumulation
    assert config["train_micro_batch_size_per_gpu"] == SPEC.micro_batch


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


SHARED = replace(SPEC, zero_stage=3, processes_per_node=8)
QLORA = Lora(rank=4, alpha=8, dropout=0.0, quantized=True)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(SPEC, zero_stage=0), "bf16 needs ZeRO stage 1"),
        (replace(SPEC, precision="fp16", zero_stage=0), "fp16 needs ZeRO stage 1"),
        (replace(SPEC, precision="fp8"), "'fp8' is not known"),
        (replace(SPEC, loss_scaling=LossScaling()), "'bf16' needs no loss scale"),
        (replace(SHARED, zero_plus_plus=("hpz",)), "kernels for GPUs only"),
        (replace(SPEC, zero_plus_plus=("hpz",)), "a part of ZeRO stage 3"),
        (replace(SHARED, zero_plus_plus=("mics",)), "'mics' is not known; use hpz, qwz, qgz"),
        (replace(SPEC, offload="nvme"), "nothing is compiled in a job: use 'parameters'"),
        (replace(SPEC, offload="disk"), "offload 'disk' is not known"),
        (replace(SPEC, offload="parameters"), "under ZeRO stage 3 only"),
        (
            replace(SPEC, precision="fp32", zero_stage=0, offload="optimizer"),
            "offload needs ZeRO stage 1",
        ),
        (replace(SPEC, rollout_offload=True), "for reinforcement under ZeRO stage 1 or 2"),
        (replace(SPEC, lora=QLORA, zero_stage=3), "QLoRA needs ZeRO stage 0 to 2"),
        (replace(SPEC, lora=QLORA, train_last_n_layers=1), "adapters freeze the whole base"),
        (replace(SPEC, lora=QLORA, train_embeddings=False), "adapters freeze the whole base"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(spec: RunSpec, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build_config(spec, 2)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_offloaded_lies_on_the_host_and_is_pinned_for_gpus_only(device: str) -> None:
    optimizer, weights = (
        engine_config(replace(SHARED, offload=what), 2, device)["zero_optimization"]
        for what in ("optimizer", "parameters")
    )

    assert optimizer["offload_optimizer"]["device"] == "cpu"
    assert optimizer["offload_optimizer"]["pin_memory"] is (device == "cuda")
    assert weights["offload_optimizer"]["device"] == weights["offload_param"]["device"] == "cpu"
    assert "offload_optimizer" not in build_config(SPEC, 2)["zero_optimization"]


def test_norms_and_biases_are_not_decayed_and_frozen_weights_not_trained() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    model[2].requires_grad_(False)

    groups = parameter_groups(model, weight_decay=0.1)

    assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(1, 0.1), (3, 0.0)]
