"""Case of the trainer benchmark: model, rows, order and batches, the same for all contestants."""

from dataclasses import dataclass

from bench.report import JsonFile

REKINDLE, PACKED, RIVAL = "rekindle", "rekindle_packed", "hf_trainer"


@dataclass(frozen=True, kw_only=True)
class TrainerCase(JsonFile):
    """Model shape, batch sizes and options of one benchmark run."""

    hidden: int
    layers: int
    vocabulary: int
    ranks: int
    micro_batch: int
    global_batch: int
    max_seq_len: int
    steps: int
    warmup: int  # warm-up steps, not counted
    precision: str
    zero_stage: int
    lora: bool
    checkpointing: bool
    accelerator: str = "cpu"  # or "cuda"
    loss_chunk: int = 0  # for Rekindle only; the rival computes all logits at once


@dataclass(frozen=True, kw_only=True)
class Inputs(JsonFile):
    """Sizes of the inputs that were generated for a case."""

    parameters: int
    tokens: list[int]  # tokens of each step without padding, all ranks together
    trained: list[int]  # tokens of each step that the assistant wrote
