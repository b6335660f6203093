"""What all contestants of one case train: the same model, rows, order and batches."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

OURS, PACKED, RIVAL = "rekindle", "rekindle_packed", "hf_trainer"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One size of model on so many ranks."""

    hidden: int
    layers: int
    vocabulary: int
    ranks: int
    micro_batch: int
    global_batch: int
    max_seq_len: int
    steps: int
    warmup: int  # steps that are not counted
    precision: str
    zero_stage: int
    lora: bool
    checkpointing: bool
    accelerator: str = "cpu"  # or "cuda"
    loss_chunk: int = 0  # of ours; their loss is of all logits at once

    def write(self, path: Path) -> None:
        """Leave it for the processes."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Case":
        """What `write` left."""
        return Case(**json.loads(path.read_text()))


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was made of a case."""

    parameters: int
    tokens: tuple[int, ...]  # of each step's rows, all ranks together; padding is none
    trained: tuple[int, ...]  # of them, what the assistant says

    def write(self, path: Path) -> None:
        """Leave it for who measures."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Inputs":
        """What `write` left."""
        found = json.loads(path.read_text())
        return Inputs(
            parameters=found["parameters"],
            tokens=tuple(found["tokens"]),
            trained=tuple(found["trained"]),
        )
