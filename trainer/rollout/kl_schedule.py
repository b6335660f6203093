"""The weight of the KL penalty, step by step."""

import math

from trainer.contract import Reinforcement

GAIN = 0.1  # of the controller (Ziegler et al. 2019, section 2.2)
MAX_ERROR = 0.2  # of the proportional error


def kl_weight(settings: Reinforcement, now: float | None, step: int, total_steps: int) -> float:
    """Return the weight in training step ``step`` (from 1); ``now``: the controller's value.

    It is constant, or falls along half a cosine to ``beta_end`` at the last step.
    """
    if settings.kl_target is not None:
        return settings.beta if now is None else now
    if settings.beta_end is None:
        return settings.beta
    done = (step - 1) / max(total_steps - 1, 1)
    fall = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return settings.beta_end + (settings.beta - settings.beta_end) * fall


def next_kl_weight(settings: Reinforcement | None, beta: float, kl: float | None) -> float | None:
    """Return the controller's weight for the next step (Ziegler et al. 2019, section 2.2).

    None without a KL target; the same weight when nothing was measured.
    """
    if settings is None or settings.kl_target is None:
        return None
    if kl is None:
        return beta
    error = min(max(kl / settings.kl_target - 1, -MAX_ERROR), MAX_ERROR)
    return beta * (1 + GAIN * error)
