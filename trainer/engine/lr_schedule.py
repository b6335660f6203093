"""The learning rate as a pure function of the step: there is no state to resume."""

import math

from trainer.contract import RunSpec


def learning_rate(
    step: int, *, peak: float, warmup_steps: int, total_steps: int, min_ratio: float
) -> float:
    """Return the rate of training step ``step`` (from 1): linear warm-up, then a cosine.

    The last step has ``min_ratio`` of the peak.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def learning_rate_of(spec: RunSpec, step: int) -> float:
    """Return the rate of training step ``step`` of this run."""
    return learning_rate(
        step,
        peak=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        total_steps=spec.total_steps,
        min_ratio=spec.min_lr_ratio,
    )
