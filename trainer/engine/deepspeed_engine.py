"""Build DeepSpeed's engine from a run spec, and drive its steps.

AdamW is torch's own (nothing is compiled in a job). The learning rate is set at every step, so no
scheduler has state.
"""

import math
import os
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

from trainer.contract import LOWEST_LOSS_SCALE, RunSpec, engine_config
from trainer.engine import loss_scale, speedups
from trainer.model.base_model import require_freezable
from trainer.process.non_retryable import NonRetryableError


def build_config(spec: RunSpec, world_size: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration; raise NonRetryableError for an impossible run spec."""
    _require_trainable(spec)
    return engine_config(spec, world_size, get_accelerator().device_name())


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the trained parameters in two groups: norms and biases do not decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if _dimensions(p) > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if _dimensions(p) <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_engine(model: torch.nn.Module, spec: RunSpec, config: dict[str, Any]) -> Any:  # noqa: ANN401
    """Build the DeepSpeed engine, in training mode."""
    if spec.precision == "fp16" and not get_accelerator().is_fp16_supported():
        raise NonRetryableError("this machine cannot compute in fp16; ask for bf16 or fp32")
    if spec.offload and get_accelerator().device_name() != "cpu":
        cores = len(os.sched_getaffinity(0))  # torchrun leaves each process one
        torch.set_num_threads(max(cores // spec.processes_per_node, 1))
    groups = parameter_groups(model, spec.weight_decay)
    if not groups:
        raise NonRetryableError(
            "no parameter of the model is trained: all of them are frozen, or no layer takes an "
            "adapter. Freeze fewer layers, or train without adapters"
        )
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
    loss_scale.disable_min_scale_error(engine)
    engine.train()
    return engine


def set_learning_rate(engine: Any, rate: float) -> None:  # noqa: ANN401
    """Use this rate for the next optimizer step."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def set_steps(engine: Any, step: int) -> None:  # noqa: ANN401
    """Tell the engine that ``step`` training steps are done, and none begun."""
    accumulation = engine.gradient_accumulation_steps()
    engine.global_steps = step
    engine.global_samples = step * engine.train_batch_size()
    engine.micro_steps = step * accumulation


def accumulate_gradients(engine: Any, objective: torch.Tensor) -> None:  # noqa: ANN401
    """Add a micro-step's gradients; ``objective`` is its share of the step's mean."""
    engine.backward(objective, scale_wrt_gas=False)


def end_micro_step(engine: Any) -> None:  # noqa: ANN401
    """Count the micro-step, unless it is the last of a step: `update_parameters` counts it."""
    if not engine.is_gradient_accumulation_boundary():
        engine.step()


def update_parameters(engine: Any) -> float | None:  # noqa: ANN401
    """Update the parameters; return the global norm of the gradients before clipping.

    None when fp16's gradients overflowed: nothing is updated, and the loss scale has fallen.
    """
    if engine.zero_optimization_stage() > 0:
        before = loss_scale.read_loss_scale(engine)
        engine.step()
        if before is not None and engine.optimizer.overflow:
            return None if before.scale > LOWEST_LOSS_SCALE else math.inf
        return float(engine.get_global_grad_norm())
    norm = _norm(engine.module)  # DeepSpeed does not report it for replicated gradients
    engine.step()
    return norm


def _require_trainable(spec: RunSpec) -> None:
    """Raise NonRetryableError for a run spec that cannot be trained, or not exactly."""
    if spec.precision not in ("bf16", "fp16", "fp32"):
        raise NonRetryableError(
            f"precision {spec.precision!r} is not known; use bf16, fp16 or fp32"
        )
    if spec.precision != "fp32" and spec.zero_stage < 1:
        raise NonRetryableError(
            f"{spec.precision} needs ZeRO stage 1 or higher: stage 0 keeps no fp32 master"
        )
    if spec.loss_scaling is not None and spec.precision != "fp16":
        raise NonRetryableError(f"precision {spec.precision!r} needs no loss scale: leave it out")
    if spec.is_quantized and spec.zero_stage == 3:
        raise NonRetryableError(
            "a base in 4 bits is whole on every rank: QLoRA needs ZeRO stage 0 to 2"
        )
    _require_offload(spec)
    speedups.require_zero_plus_plus(spec, get_accelerator().device_name())
    require_freezable(spec)


def _require_offload(spec: RunSpec) -> None:
    if spec.offload == "nvme":
        raise NonRetryableError(
            "offload to NVMe needs a library that is compiled where it runs, and nothing is "
            "compiled in a job: use 'parameters' or 'optimizer'"
        )
    if spec.offload not in ("", "optimizer", "parameters"):
        raise NonRetryableError(
            f"offload {spec.offload!r} is not known; use 'optimizer', 'parameters' or leave it out"
        )
    if spec.offload and spec.zero_stage < 1:
        raise NonRetryableError(
            "offload needs ZeRO stage 1 or higher: stage 0 keeps no masters apart"
        )
    if spec.offload == "parameters" and spec.zero_stage < 3:
        raise NonRetryableError("parameters are on the host under ZeRO stage 3 only: ask for it")
    if spec.rollout_offload and (spec.reinforcement is None or spec.zero_stage not in (1, 2)):
        raise NonRetryableError(
            "rollout_offload is for reinforcement under ZeRO stage 1 or 2: DeepSpeed moves the "
            "states of its own optimizer alone at stage 3"
        )
    if spec.rollout_offload and spec.offload:
        raise NonRetryableError(
            "the optimizer is on the host all along: leave out `rollout_offload`"
        )


def _dimensions(parameter: Any) -> int:  # noqa: ANN401
    """Return the dimensions of the whole parameter; ZeRO-3 keeps its shape in ``ds_shape``."""
    return len(getattr(parameter, "ds_shape", parameter.shape))


def _norm(module: torch.nn.Module) -> float:
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))
