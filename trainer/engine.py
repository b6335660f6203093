"""Run spec -> DeepSpeed: its configuration, the parameter groups, the engine, the step's numbers.

AdamW is torch's own (nothing is compiled in a job), and the learning rate is set from
outside at every step, so that no scheduler has a state.
"""

import os
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

from trainer.contract import RunSpec
from trainer.data.order import micro_steps
from trainer.freeze import require_freezable
from trainer.hopeless import Hopeless

BETAS = (0.9, 0.95)
EPSILON = 1e-8
BUCKET = 50_000_000  # elements per collective; a buffer of this size is held all the time


def deepspeed_config(spec: RunSpec, world_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration for this run on this world."""
    _require_possible(spec)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": spec.micro_batch,
        "gradient_accumulation_steps": micro_steps(spec.global_batch, spec.micro_batch, world_size),
        "gradient_clipping": spec.max_grad_norm,
        "zero_optimization": {
            "stage": _stage(spec),
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
        },
        "bf16": {"enabled": spec.precision == "bf16"},
        "optimizer": {"type": "AdamW", "params": _adamw(spec)},
        "steps_per_print": 10**9,
    }
    if spec.offload:
        pinned = get_accelerator().device_name() != "cpu"
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": pinned}
    if spec.precision == "bf16":
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """What is trained, in two groups: norms and biases are not decayed."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if _dimensions(p) > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if _dimensions(p) <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_engine(model: torch.nn.Module, spec: RunSpec, config: dict[str, Any]) -> Any:  # noqa: ANN401
    """The DeepSpeed engine, in training mode."""
    if spec.offload and get_accelerator().device_name() != "cpu":
        cores = len(os.sched_getaffinity(0))  # torchrun leaves each process one
        torch.set_num_threads(max(cores // spec.processes_per_node, 1))
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=parameter_groups(model, spec.weight_decay),
        config=config,
    )
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


def backward(engine: Any, objective: torch.Tensor) -> None:  # noqa: ANN401
    """Add a micro-step's gradients; the objective is already a share of the step's mean."""
    engine.backward(objective, scale_wrt_gas=False)


def end_micro_step(engine: Any) -> None:  # noqa: ANN401
    """Count the micro-step, unless it is the last one of a training step: then `update` does."""
    if not engine.is_gradient_accumulation_boundary():
        engine.step()


def update(engine: Any) -> float:  # noqa: ANN401
    """Update the parameters; return the global norm of the gradients before clipping."""
    if engine.zero_optimization_stage() > 0:
        engine.step()
        return float(engine.get_global_grad_norm())
    norm = _norm(engine.module)  # DeepSpeed does not tell it where gradients are replicated
    engine.step()
    return norm


def _require_possible(spec: RunSpec) -> None:
    """Raise ValueError for what cannot be trained exactly, or not at all."""
    if spec.precision not in ("bf16", "fp32"):
        raise Hopeless(f"precision {spec.precision!r} is not known; use bf16 or fp32")
    if spec.precision == "bf16" and spec.zero_stage < 1:
        raise Hopeless("bf16 needs ZeRO stage 1 or higher: stage 0 keeps no fp32 master")
    if spec.lora is not None and spec.lora.quantized and spec.zero_stage == 3:
        raise Hopeless("a base in 4 bits is whole on every rank: QLoRA needs ZeRO stage 0 to 2")
    if spec.offload not in ("", "optimizer"):
        raise Hopeless(f"offload {spec.offload!r} is not known; use 'optimizer' or leave it out")
    if spec.offload and spec.zero_stage < 1:
        raise Hopeless("offload needs ZeRO stage 1 or higher: stage 0 keeps no masters apart")
    require_freezable(spec)


def _stage(spec: RunSpec) -> int:
    """Stage 1 in bf16 runs as stage 2: same shares, but only there DeepSpeed sums gradients
    in fp32 without changing to another optimizer class."""
    return 2 if (spec.precision, spec.zero_stage) == ("bf16", 1) else spec.zero_stage


def _adamw(spec: RunSpec) -> dict[str, Any]:
    return {
        "lr": spec.learning_rate,
        "betas": list(BETAS),
        "eps": EPSILON,
        "weight_decay": spec.weight_decay,
        "torch_adam": True,
    }


def _dimensions(parameter: Any) -> int:  # noqa: ANN401
    """Of the whole parameter; ZeRO-3 leaves an empty one behind and keeps the shape aside."""
    return len(getattr(parameter, "ds_shape", parameter.shape))


def _norm(module: torch.nn.Module) -> float:
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))
