"""What a run spec makes of DeepSpeed, of the learning rate and of what makes steps faster."""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import Lora, LossScaling, RunSpec, engine_config
from trainer.engine import deepspeed_engine as ds
from trainer.engine import loss_scale, speedups
from trainer.engine.deepspeed_engine import build_config, parameter_groups
from trainer.engine.loss_scale import LossScale
from trainer.engine.lr_schedule import learning_rate


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
    ("precision", "requested_stage", "used"),
    [("bf16", 1, 2), ("bf16", 2, 2), ("bf16", 3, 3), ("fp32", 1, 1)],
)
def test_bf16_has_its_gradients_sharded_from_stage_1_on(
    precision: str, requested_stage: int, used: int
) -> None:
    spec = replace(SPEC, precision=precision, zero_stage=requested_stage)

    assert build_config(spec, 2)["zero_optimization"]["stage"] == used


SHARED = replace(SPEC, zero_stage=3, processes_per_node=8)
QLORA = Lora(rank=4, alpha=8, dropout=0.0, quantized=True)


@pytest.mark.parametrize(
    ("spec", "expected"),
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
def test_what_cannot_be_is_refused_in_a_sentence(spec: RunSpec, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        build_config(spec, 2)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_offloaded_lies_on_the_host_and_is_pinned_for_gpus_only(device: str) -> None:
    optimizer, weights = (
        engine_config(replace(SHARED, offload=offload), 2, device)["zero_optimization"]
        for offload in ("optimizer", "parameters")
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


rate = partial(learning_rate, peak=1.0, warmup_steps=4, total_steps=12, min_ratio=0.1)


def test_the_rate_rises_in_a_line_to_the_peak() -> None:
    assert [rate(step) for step in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]


def test_the_rate_falls_along_a_cosine_to_its_floor() -> None:
    assert rate(8) == pytest.approx(0.55)
    assert rate(12) == pytest.approx(0.1)
    assert rate(6) > rate(7) > rate(8)


def test_without_warm_up_the_first_step_is_just_below_the_peak() -> None:
    assert 0.9 < learning_rate(1, peak=1, warmup_steps=0, total_steps=12, min_ratio=0) < 1


WISHES = replace(SPEC, compiled=True, fused_kernels=True)


def test_on_a_cpu_neither_is_used_and_both_are_told() -> None:
    model = torch.nn.Linear(2, 2)

    unused = speedups.apply_speedups(model, WISHES, "cpu")

    assert set(unused) == {"compiled", "fused_kernels"}
    assert tuple(unused.values()) == speedups.unused_speedups(WISHES, "cpu")
    assert unused["compiled"] == "compiled was not used: on a CPU nothing is compiled."
    assert model._compiled_call_impl is None
    assert speedups.apply_speedups(model, SPEC, "cpu") == {}


def test_on_a_gpu_it_depends_on_what_is_installed_and_what_else_is_asked_for() -> None:
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=True) == ()
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=False, has_compiler=True) == (
        "fused_kernels were not used: liger-kernel is not installed.",
    )
    (message,) = speedups.unused_speedups(replace(WISHES, zero_stage=3), "cuda", has_liger=True)
    assert "not with ZeRO stage 3" in message
    # Triton raised `Failed to find C compiler` in the first step.
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=False) == (
        "compiled was not used: this image has no C compiler, which Triton needs.",
    )


def test_zero_plus_plus_is_what_deepspeed_calls_it() -> None:
    spec = replace(SHARED, zero_plus_plus=("hpz", "qwz", "qgz"))
    plain = engine_config(SHARED, 16, "cuda")["zero_optimization"]

    assert engine_config(spec, 16, "cuda")["zero_optimization"] == plain | {
        "zero_hpz_partition_size": 8,
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
    }
    speedups.require_zero_plus_plus(replace(SHARED, zero_plus_plus=("hpz",)), "cuda")


HALF = replace(SPEC, precision="fp16")


@dataclass
class Optimizer:
    """As much of DeepSpeed's as the loss scale is about."""

    loss_scaler: Any = field(
        default_factory=lambda: DynamicLossScaler(
            init_scale=8.0,
            scale_window=2,
            min_scale=1.0,
            delayed_shift=1,
            consecutive_hysteresis=False,
        )
    )
    overflow: bool = False


@dataclass
class Engine:
    """An update of which overflows, or not, as it is told."""

    overflows: bool = False
    optimizer: Optimizer = field(default_factory=Optimizer)

    def step(self) -> None:
        self.optimizer.overflow = self.overflows
        if not self.overflows:
            self.optimizer.loss_scaler.update_scale(False)

    def zero_optimization_stage(self) -> int:
        return 2

    def get_global_grad_norm(self) -> float:
        return 0.5


def test_a_scale_that_is_restored_grows_at_the_same_step_as_the_one_that_was_saved() -> None:
    saved, resumed = Engine(), Engine()
    for _ in range(4):
        saved.step()

    loss_scale.restore_loss_scale(resumed, loss_scale.read_loss_scale(saved))

    for _ in range(5):
        assert loss_scale.read_loss_scale(resumed) == loss_scale.read_loss_scale(saved)
        saved.step()
        resumed.step()
    assert loss_scale.scale_value(saved) == 128.0


def test_a_checkpoint_without_a_scale_leaves_it_as_it_begins() -> None:
    engine = Engine()

    loss_scale.restore_loss_scale(engine, None)

    assert loss_scale.read_loss_scale(engine) == LossScale(
        scale=8.0, steps=0, overflowed_at=-1, patience=1
    )


def test_an_update_that_overflows_is_left_out_unless_the_scale_has_nowhere_to_fall() -> None:
    lowest = Engine(overflows=True)
    lowest.optimizer.loss_scaler.cur_scale = 1.0

    assert ds.update_parameters(Engine()) == 0.5
    assert ds.update_parameters(Engine(overflows=True)) is None
    assert ds.update_parameters(lowest) == math.inf


def test_fp16_has_a_dynamic_scale_and_sums_its_gradients_in_fp32() -> None:
    config = ds.build_config(replace(HALF, loss_scaling=LossScaling(window=7)), 2)

    assert config["fp16"]["enabled"]
    assert not config["bf16"]["enabled"]
    assert (config["fp16"]["loss_scale"], config["fp16"]["loss_scale_window"]) == (0, 7)
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "fp16" not in ds.build_config(SPEC, 2)
