"""Names of a step's figures in experiment trackers: the same live and in later copies."""

from collections.abc import Mapping
from typing import Any

LARGEST = 3.4e38  # of a float in an event file
JOB_TAG, STEP_TAG = "rekindle.job", "rekindle.step"  # of a run: whose it is, its last whole step
_NO_FIGURES = ("step", "generation")
_VALID = "valid_loss"


def tagged(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite figures of one step under the names that TensorBoard groups by."""
    known = {n: v for n, v in row.items() if isinstance(v, int | float) and abs(v) <= LARGEST}
    found = {f"train/{n}": v for n, v in known.items() if n not in (*_NO_FIGURES, _VALID)}
    if _VALID not in known:
        return found
    if "reward" in known:  # the validation loss is then minus a reward
        return found | {"valid/reward": -known[_VALID]}
    return found | {"valid/loss": known[_VALID]}
