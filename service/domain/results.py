"""The result file of a job: its metrics as CSV, with the columns of OpenAI's. Pure.

A column of ours comes last and only where it says something: files that were kept before it was
there still have the bytes that their rows tell.
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


def columns(*, margins: bool) -> Columns:
    """What the file has, in its order."""
    return _COLUMNS | _MARGINS if margins else _COLUMNS


def header(columns: Columns) -> str:
    """The first line."""
    return f"{','.join(columns)}\n"


def line(columns: Columns, row: Mapping[str, Any]) -> str:
    """One training step; what was not measured, or is no number, is left empty.

    >>> line(columns(margins=False), {"step": 3, "loss": 0.5, "accuracy": 1.0, "valid_loss": None})
    '3,0.5,1.0,,\\n'
    """
    return f"{','.join(_number(row[name] if name else None) for name in columns.values())}\n"


def _number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(value)
