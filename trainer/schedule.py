"""The learning rate as a pure function of the step, so that there is no state to resume."""

import math


def learning_rate(
    step: int, *, peak: float, warmup_steps: int, total_steps: int, min_ratio: float
) -> float:
    """Rate of training step ``step`` (the first is 1): linear warm-up, then a cosine.

    The last step has ``min_ratio`` of the peak.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
