"""Run spec -> DeepSpeed's configuration. Standard library only.

Part of the contract: import it from `trainer.contract`. The trainer checks the run spec first
(`trainer/engine/deepspeed_engine.py`); the service shows the same configuration to users.
"""

from typing import Any

from trainer.contract.run_spec import LossScaling, RunSpec

BETAS = (0.9, 0.95)
EPSILON = 1e-8
BUCKET = 50_000_000  # elements per collective; a buffer of this size is held all the time
LOWEST_LOSS_SCALE = 1.0  # fp16; gradients that overflow at it are wrong for another reason


def engine_config(spec: RunSpec, world_size: int, device: str) -> dict[str, Any]:
    """Return DeepSpeed's configuration for this run on ``world_size`` processes.

    ``device`` is "cuda" or "cpu": memory of the host is pinned for GPUs only.
    """
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
    config["zero_optimization"] |= _offload(spec, device) | _plus_plus(spec)
    if spec.precision == "fp16":
        config["fp16"] = _fp16(spec.loss_scaling or LossScaling())
    if spec.precision != "fp32":
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


def micro_steps(global_batch: int, micro_batch: int, world_size: int) -> int:
    """Return the micro-steps (gradient accumulation) that cover a global batch."""
    return -(-global_batch // (micro_batch * world_size))


def _stage(spec: RunSpec) -> int:
    """Return the ZeRO stage; 16 bits at stage 1 run as stage 2.

    The shares are the same, but only stage 2 sums gradients in fp32 without another optimizer
    class.
    """
    return 2 if spec.precision != "fp32" and spec.zero_stage == 1 else spec.zero_stage


def _offload(spec: RunSpec, device: str) -> dict[str, Any]:
    """Return the members that put states on the host, in memory that the GPU copies from."""
    host = {"device": "cpu", "pin_memory": device != "cpu"}
    members: dict[str, Any] = {"offload_optimizer": host} if spec.offload else {}
    return members | ({"offload_param": host} if spec.offload == "parameters" else {})


def _plus_plus(spec: RunSpec) -> dict[str, Any]:
    """Return ZeRO++ as members of `zero_optimization` (Wang et al., 2023)."""
    members: dict[str, Any] = {}
    if "hpz" in spec.zero_plus_plus:  # a second copy of the weights, shared out inside each node
        members["zero_hpz_partition_size"] = spec.processes_per_node
    if "qwz" in spec.zero_plus_plus:  # weights travel in 8 bits
        members["zero_quantized_weights"] = True
    if "qgz" in spec.zero_plus_plus:  # gradients in 4
        members["zero_quantized_gradients"] = True
    return members


def _fp16(scaling: LossScaling) -> dict[str, Any]:
    return {
        "enabled": True,
        "loss_scale": 0,  # a dynamic one
        "initial_scale_power": scaling.start_power,
        "loss_scale_window": scaling.window,
        "hysteresis": 1,
        "min_loss_scale": int(LOWEST_LOSS_SCALE),
    }


def _adamw(spec: RunSpec) -> dict[str, Any]:
    return {
        "lr": spec.learning_rate,
        "betas": list(BETAS),
        "eps": EPSILON,
        "weight_decay": spec.weight_decay,
        "torch_adam": True,
    }
