"""Run specs of the benchmarks."""

from collections.abc import Sequence
from typing import Any

from trainer.contract import InputFile, PinnedModel, RunSpec


def plain_spec(model: Sequence[InputFile], rows: InputFile, **members: Any) -> RunSpec:  # noqa: ANN401
    """Return a run spec without optional parts; ``members`` replace or add to its members."""
    defaults: dict[str, Any] = {
        "method": "supervised",
        "total_steps": 1,
        "global_batch": 1,
        "micro_batch": 1,
        "max_seq_len": 1,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "zero_stage": 2,
        "gradient_checkpointing": False,
        "processes_per_node": 1,
    }
    return RunSpec(
        version=1,
        job_id="ftjob-bench",
        seed=1,
        base_model=PinnedModel(name="bench", revision="0", files=tuple(model)),
        training_file=rows,
        validation_file=None,
        min_lr_ratio=0.1,
        max_grad_norm=1.0,
        checkpoint_seconds=1e9,
        eval_steps=0,
        nodes=1,
        **(defaults | members),
    )


_FILE = InputFile(path="files/train.jsonl", size=1, sha256="0" * 64)
SPEC = plain_spec([_FILE], _FILE)  # of saves without training
