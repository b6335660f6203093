"""Case of the trainer benchmark: model, rows, order and batches, the same for all contestants."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

OURS, PACKED, RIVAL = "rekindle", "rekindle_packed", "hf_trainer"


@dataclass(frozen=True, kw_only=True)
class Case:
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

    def write(self, path: Path) -> None:
        """Write the case to a file for the training processes."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Case":
        """Read a case that `write` wrote."""
        return Case(**json.loads(path.read_text()))


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Sizes of the inputs that were generated for a case."""

    parameters: int
    tokens: tuple[int, ...]  # tokens of each step without padding, all ranks together
    trained: tuple[int, ...]  # tokens of each step that the assistant wrote

    def write(self, path: Path) -> None:
        """Write the sizes to a file for the benchmark."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Inputs":
        """Read the sizes that `write` wrote."""
        found = json.loads(path.read_text())
        return Inputs(
            parameters=found["parameters"],
            tokens=tuple(found["tokens"]),
            trained=tuple(found["trained"]),
        )
