"""Advantages: how much better an answer, or a token, was than expected. Pure, in fp64."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-4  # added to a group's deviation: answers that are all alike teach nothing

Doubles = NDArray[np.float64]


def group_advantages(rewards: Sequence[float]) -> Doubles:
    """Return (r - mean) / standard deviation, over the answers to one prompt (GRPO)."""
    r = np.asarray(rewards, dtype=np.float64)
    advantages: Doubles = (r - r.mean()) / (r.std(ddof=1) + EPSILON)
    return advantages


def leave_one_out_advantages(rewards: Sequence[float]) -> Doubles:
    """Return r less the mean of the other answers' (RLOO: Ahmadian et al., 2024)."""
    r = np.asarray(rewards, dtype=np.float64)
    advantages: Doubles = (r - r.mean()) * len(r) / (len(r) - 1)
    return advantages


def generalized_advantages(rewards: Doubles, values: Doubles, decay: float) -> Doubles:
    """Return generalized advantage estimates over one answer [tokens] (Schulman et al., 2016).

    ``values[t]`` is the expected return before token t. There is no discount, and nothing is
    expected after the last token: A_t = d_t + decay A_{t+1}, d_t = r_t + V_{t+1} - V_t.
    """
    following = np.append(values[1:], 0.0)
    advantages, later = np.zeros_like(values), 0.0
    for t in reversed(range(len(values))):
        later = rewards[t] + following[t] - values[t] + decay * later
        advantages[t] = later
    return advantages
