"""What makes steps faster on GPUs is used there, and elsewhere the run says that it is not."""

from dataclasses import replace

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import RunSpec, engine_config
from trainer.engine import deepspeed_engine, speedups

WISHES = replace(SPEC, compiled=True, fused_kernels=True)
SHARED = replace(SPEC, zero_stage=3, processes_per_node=8)


def test_on_a_cpu_neither_is_used_and_both_are_told() -> None:
    model = torch.nn.Linear(2, 2)

    told = speedups.apply_speedups(model, WISHES, "cpu")

    assert set(told) == {"compiled", "fused_kernels"}
    assert tuple(told.values()) == speedups.unused_speedups(WISHES, "cpu")
    assert told["compiled"] == "compiled was not used: on a CPU nothing is compiled."
    assert model._compiled_call_impl is None


def test_nothing_is_told_of_what_nobody_asked_for() -> None:
    assert speedups.apply_speedups(torch.nn.Linear(2, 2), SPEC, "cpu") == {}


def test_on_a_gpu_it_depends_on_what_is_installed_and_what_else_is_asked_for() -> None:
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=True) == ()
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=False, has_compiler=True) == (
        "fused_kernels were not used: liger-kernel is not installed.",
    )
    (told,) = speedups.unused_speedups(replace(WISHES, zero_stage=3), "cuda", has_liger=True)
    assert "not with ZeRO stage 3" in told


def test_a_gpu_image_without_a_c_compiler_trains_uncompiled_instead_of_failing() -> None:
    """Triton raised `Failed to find C compiler` in the first step."""
    (told,) = speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=False)

    assert told == "compiled was not used: this image has no C compiler, which Triton needs."


def test_zero_plus_plus_is_what_deepspeed_calls_it() -> None:
    asked = replace(SHARED, zero_plus_plus=("hpz", "qwz", "qgz"))
    plain = engine_config(SHARED, 16, "cuda")["zero_optimization"]

    assert engine_config(asked, 16, "cuda")["zero_optimization"] == plain | {
        "zero_hpz_partition_size": 8,
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
    }
    speedups.require_zero_plus_plus(replace(SHARED, zero_plus_plus=("hpz",)), "cuda")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(SHARED, zero_plus_plus=("hpz",)), "kernels for GPUs only"),
        (replace(SPEC, zero_plus_plus=("hpz",)), "a part of ZeRO stage 3"),
        (replace(SHARED, zero_plus_plus=("mics",)), "'mics' is not known; use hpz, qwz, qgz"),
        (replace(SPEC, offload="nvme"), "nothing is compiled in a job: use 'parameters'"),
        (replace(SPEC, offload="parameters"), "under ZeRO stage 3 only"),
        (replace(SPEC, rollout_offload=True), "for reinforcement under ZeRO stage 1 or 2"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(spec: RunSpec, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        deepspeed_engine.build_config(spec, 2)


def test_weights_on_the_host_take_the_optimizer_with_them() -> None:
    config = deepspeed_engine.build_config(replace(SHARED, offload="parameters"), 2)

    assert config["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
