"""Run specs that spend less memory, each where it takes another way through the trainer."""

from dataclasses import replace
from pathlib import Path

from tests.system.worlds import LORA, by_preferences, make_spec
from trainer.contract import RunSpec

QLORA = replace(LORA, quantized=True)


def savers(inputs: Path) -> dict[str, RunSpec]:
    """By name; six steps and an evaluation amid them, for in 4 bits a CPU is slow."""
    spec = replace(make_spec(inputs), total_steps=6, eval_steps=3)
    pairs = replace(by_preferences(inputs), total_steps=6, eval_steps=3)
    return _quantized(spec, pairs) | _frozen(spec, pairs) | _chunked(spec) | _offloaded(spec, pairs)


def _quantized(spec: RunSpec, pairs: RunSpec) -> dict[str, RunSpec]:
    spec, pairs = replace(spec, lora=QLORA), replace(pairs, lora=QLORA)
    return {
        "qlora-zero0-fp32": replace(spec, precision="fp32", zero_stage=0),
        "qlora-zero1-bf16": replace(spec, zero_stage=1, gradient_checkpointing=True),
        "qlora-zero2-bf16": replace(spec, packing=True),
        "qlora-zero2-fp32-dpo": replace(pairs, precision="fp32"),
    }


def _frozen(spec: RunSpec, pairs: RunSpec) -> dict[str, RunSpec]:
    last = replace(spec, train_last_n_layers=2, train_embeddings=False)
    preferred = replace(pairs, train_last_n_layers=2, train_embeddings=False)
    return {
        "frozen-zero0-fp32": replace(last, precision="fp32", zero_stage=0),
        "frozen-zero1-fp32": replace(
            spec, train_last_n_layers=1, precision="fp32", zero_stage=1
        ),  # with the embeddings
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
        "offload-zero3-bf16-dpo": replace(pairs, zero_stage=3),
    }
