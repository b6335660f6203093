"""Compute the progress of a job from the nodes' reports and its committed checkpoints. Pure.

Reports may stop before training does, when the network to the service fails and storage still
answers. Then the committed checkpoint counts, not the last report.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from service.domain.planning.checkpoint_interval import save_cost
from trainer.contract import SaveCost, StepMetrics

OF_METHODS = ("margin", "reward", "kl", "answer_tokens")  # null where the method has none
OF_A_STEP = ("loss", "valid_loss", *OF_METHODS)


def with_committed(
    progress: Mapping[str, Any], step: int, *, is_over: bool, valid_loss: float | None = None
) -> dict[str, Any]:
    """Return ``progress``, or that of the committed ``step`` where the reports end before it.

    A job that is ``is_over`` shows no figure of an earlier step: no report will replace it.
    """
    if step <= progress.get("step", 0):
        return dict(progress)
    figures = dict.fromkeys(OF_A_STEP) | {"valid_loss": valid_loss} if is_over else {}
    return {**progress, **figures, "step": step}


def progress_of(measured: Sequence[StepMetrics], saved: SaveCost | None = None) -> dict[str, Any]:
    """Return the progress of a job at the last of these steps; ``saved``: cost of its last save."""
    last = max(measured, key=lambda m: m.step)
    figures: dict[str, float | int | None] = {"step": last.step, "loss": last.loss}
    of_methods = {name: getattr(last, name) for name in OF_METHODS}
    figures |= {name: value for name, value in of_methods.items() if value is not None}
    validated = [m for m in measured if m.valid_loss is not None]
    if validated:
        figures["valid_loss"] = max(validated, key=lambda m: m.step).valid_loss
    return {name: _finite(value) for name, value in figures.items()} | save_cost(saved)


def _finite(value: float | None) -> float | None:
    """Return the number, or None where JSON has none."""
    return value if value is not None and math.isfinite(value) else None
