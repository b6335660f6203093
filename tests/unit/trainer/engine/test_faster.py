"""What makes steps faster on GPUs is used there, and elsewhere the run says that it is not."""

from dataclasses import replace

import torch

from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import engine_config
from trainer.engine import speedups

WISHES = replace(SPEC, compiled=True, fused_kernels=True)
SHARED = replace(SPEC, zero_stage=3, processes_per_node=8)


def test_on_a_cpu_neither_is_used_and_both_are_told() -> None:
    model = torch.nn.Linear(2, 2)

    told = speedups.apply_speedups(model, WISHES, "cpu")

    assert set(told) == {"compiled", "fused_kernels"}
    assert tuple(told.values()) == speedups.unused_speedups(WISHES, "cpu")
    assert told["compiled"] == "compiled was not used: on a CPU nothing is compiled."
    assert model._compiled_call_impl is None
    assert speedups.apply_speedups(model, SPEC, "cpu") == {}


def test_on_a_gpu_it_depends_on_what_is_installed_and_what_else_is_asked_for() -> None:
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=True) == ()
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=False, has_compiler=True) == (
        "fused_kernels were not used: liger-kernel is not installed.",
    )
    (told,) = speedups.unused_speedups(replace(WISHES, zero_stage=3), "cuda", has_liger=True)
    assert "not with ZeRO stage 3" in told
    # Triton raised `Failed to find C compiler` in the first step.
    assert speedups.unused_speedups(WISHES, "cuda", has_liger=True, has_compiler=False) == (
        "compiled was not used: this image has no C compiler, which Triton needs.",
    )


def test_zero_plus_plus_is_what_deepspeed_calls_it() -> None:
    asked = replace(SHARED, zero_plus_plus=("hpz", "qwz", "qgz"))
    plain = engine_config(SHARED, 16, "cuda")["zero_optimization"]

    assert engine_config(asked, 16, "cuda")["zero_optimization"] == plain | {
        "zero_hpz_partition_size": 8,
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
    }
    speedups.require_zero_plus_plus(replace(SHARED, zero_plus_plus=("hpz",)), "cuda")
