"""Run specs that spend less memory, each where it takes another way through the trainer."""

from dataclasses import replace
from pathlib import Path

import torch

from tests.system.exactness.worlds import ACCELERATOR, LORA, by_grades, by_preferences, make_spec
from trainer.contract import LossScaling, RunSpec

QLORA = replace(LORA, quantized=True)


def savers(inputs: Path) -> dict[str, RunSpec]:
    """By name; six steps and an evaluation amid them, for in 4 bits a CPU is slow."""
    spec = replace(make_spec(inputs), total_steps=6, eval_steps=3)
    pairs = replace(by_preferences(inputs), total_steps=6, eval_steps=3)
    return _quantized(spec) | _frozen(spec, pairs) | _chunked(spec) | _offloaded(spec, pairs)


def has_fp16() -> bool:
    """Whether fp16 can be computed here: on a GPU, or as DeepSpeed asks torch of a processor."""
    return ACCELERATOR != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def halved(inputs: Path) -> dict[str, RunSpec]:
    """fp16, whose loss scale grows every other step until a step is skipped."""
    scaling = LossScaling(start_power=14, window=2)
    spec = replace(make_spec(inputs), precision="fp16", loss_scaling=scaling)
    pairs = replace(by_preferences(inputs), precision="fp16", loss_scaling=scaling)
    answers = replace(by_grades(inputs, "grpo"), precision="fp16", loss_scaling=scaling)
    return {
        "halved-full-zero1-sft": replace(spec, zero_stage=1),
        "halved-full-zero2-sft": spec,
        "halved-full-zero3-sft": replace(spec, zero_stage=3),
        "halved-full-zero2-offload": replace(spec, offload="optimizer", ema_decay=0.9),
        "halved-lora-zero3-dpo": replace(pairs, lora=LORA, zero_stage=3),
        "halved-qlora-zero2-reward": replace(pairs, method="reward", dpo=None, lora=QLORA),
        "halved-full-zero2-grpo": answers,
    }


def put_aside(inputs: Path) -> dict[str, RunSpec]:
    """Return run specs that move the optimizer to the host while answers are written."""
    answers = replace(by_grades(inputs, "grpo"), rollout_offload=True, total_steps=6, eval_steps=3)
    critic = by_grades(inputs, "ppo", steps_per_rollout=2)
    critic = replace(critic, rollout_offload=True, total_steps=6, eval_steps=3, lora=LORA)
    return {
        "aside-full-zero2-bf16-grpo": replace(answers, ema_decay=0.9),
        "aside-lora-zero1-fp32-ppo": replace(critic, precision="fp32", zero_stage=1),
    }


def _quantized(spec: RunSpec) -> dict[str, RunSpec]:
    """Beside those of every method: `tests/system/exactness/matrix.py`."""
    spec = replace(spec, lora=QLORA)
    return {
        "qlora-zero1-bf16-checkpointed": replace(spec, zero_stage=1, gradient_checkpointing=True),
        "qlora-zero2-bf16-packed": replace(spec, packing=True),
    }


def _frozen(spec: RunSpec, pairs: RunSpec) -> dict[str, RunSpec]:
    last = replace(spec, train_last_n_layers=2, train_embeddings=False)
    preferred = replace(pairs, train_last_n_layers=2, train_embeddings=False)
    return {
        "frozen-zero0-fp32": replace(last, precision="fp32", zero_stage=0),
        # This one also trains the embeddings.
        "frozen-zero1-fp32": replace(spec, train_last_n_layers=1, precision="fp32", zero_stage=1),
        "frozen-zero2-bf16": last,
        "frozen-zero3-bf16": replace(last, zero_stage=3, gradient_checkpointing=True),
        "frozen-zero3-bf16-dpo": replace(preferred, zero_stage=3),
    }


def _chunked(spec: RunSpec) -> dict[str, RunSpec]:
    chunked = replace(spec, loss_chunk=16)
    packed = replace(chunked, packing=True, precision="fp32", lora=LORA)
    return {
        "chunked-zero0-fp32": replace(chunked, precision="fp32", zero_stage=0),
        "chunked-zero1-fp32": replace(chunked, precision="fp32", zero_stage=1),
        "chunked-zero2-bf16": chunked,
        "chunked-zero3-bf16": replace(chunked, zero_stage=3),
        "chunked-zero3-fp32-packed": replace(packed, zero_stage=3),
    }


def _offloaded(spec: RunSpec, pairs: RunSpec) -> dict[str, RunSpec]:
    spec, pairs = replace(spec, offload="optimizer"), replace(pairs, offload="optimizer")
    return {
        "offload-zero1-fp32": replace(spec, precision="fp32", zero_stage=1),
        "offload-zero2-bf16": spec,
        "offload-zero2-bf16-lora": replace(spec, lora=LORA),
        "offload-zero3-bf16": replace(spec, zero_stage=3),
        "offload-zero3-bf16-parameters": replace(spec, zero_stage=3, offload="parameters"),
        "offload-zero3-fp32-parameters-lora": replace(
            spec, zero_stage=3, offload="parameters", precision="fp32", lora=LORA
        ),
        "offload-zero3-bf16-dpo": replace(pairs, zero_stage=3),
    }
