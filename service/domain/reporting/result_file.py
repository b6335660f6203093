"""Write the result file of a job: its metrics as CSV, with OpenAI's columns. Pure.

Our own columns come last and only where they have values: files that were stored before a column
existed still have the same bytes.
"""

import math
from collections.abc import Mapping
from typing import Any

PURPOSE = "fine-tune-results"
FILENAME = "step_metrics.csv"

Columns = Mapping[str, str]  # the file's name of each, and ours; empty: never measured

_COLUMNS = {
    "step": "step",
    "train_loss": "loss",
    "train_accuracy": "accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "",
}
_MARGINS = {"train_reward_margin": "margin"}
_REWARDS = {
    "train_mean_reward": "reward",
    "valid_mean_reward": "valid_reward",
    "train_kl": "kl",
    "train_mean_answer_tokens": "answer_tokens",
    "train_grader_errors": "grader_errors",
}


def columns(*, margins: bool = False, rewards: bool = False) -> Columns:
    """Return the columns of the file, in order."""
    return _COLUMNS | (_MARGINS if margins else {}) | (_REWARDS if rewards else {})


def header(columns: Columns) -> str:
    """Return the first line."""
    return f"{','.join(columns)}\n"


def line(columns: Columns, row: dict[str, Any]) -> str:
    r"""Format one training step; missing values and non-numbers are empty.

    >>> line(columns(), {"step": 3, "loss": 0.5, "accuracy": 1.0, "valid_loss": None})
    '3,0.5,1.0,,\n'
    """
    values = row | {"": None}
    if (loss := row["valid_loss"]) is not None:
        values["valid_reward"] = -loss  # with reinforcement it is what the best model has least of
    return f"{','.join(_number(values.get(name)) for name in columns.values())}\n"


def _number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(value)
