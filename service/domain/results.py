"""The result file of a job: its metrics as CSV, with the columns of OpenAI's. Pure."""

import math
from collections.abc import Mapping
from typing import Any

PURPOSE = "fine-tune-results"
FILENAME = "step_metrics.csv"
HEADER = "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy\n"


def line(row: Mapping[str, Any]) -> str:
    """One training step; what was not measured, or is no number, is left empty.

    >>> line({"step": 3, "loss": 0.5, "accuracy": 1.0, "valid_loss": None})
    '3,0.5,1.0,,\\n'
    """
    measured = (row["loss"], row["accuracy"], row["valid_loss"])
    return f"{row['step']},{','.join(map(_number, measured))},\n"


def _number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(value)
