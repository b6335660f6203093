"""Compare two models' answers to the same prompts.

The interval is Wilson's (1927) of the wins, a tie counted as half: that varies less than a win or a
loss, so with ties the interval is rather too wide than too narrow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z = 1.959963984540054  # quantile of the normal distribution for 95 %


@dataclass(frozen=True, kw_only=True)
class RatedAnswer:
    """One model's answer to one prompt."""

    text: str
    is_cut: bool  # at --max-tokens
    reward: float | None = None  # None: the judge gave no finite number


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """Result over all prompts."""

    prompts: int
    wins: int  # of A
    losses: int
    ties: int
    not_rated: int
    win_rate: float | None  # of those that were rated, a tie as half; None: none was rated
    low: float
    high: float
    mean_reward: tuple[float | None, float | None]  # of A, of B
    cut: tuple[int, int]


def compare_answers(answers_a: Sequence[RatedAnswer], answers_b: Sequence[RatedAnswer]) -> WinRate:
    """Compare the answers prompt by prompt."""
    pairs = list(zip(answers_a, answers_b, strict=True))
    leads = [_lead(a, b) for a, b in pairs]
    rated = [lead for lead in leads if lead is not None]
    wins, losses = sum(lead > 0 for lead in rated), sum(lead < 0 for lead in rated)
    rate = (wins + (len(rated) - wins - losses) / 2) / len(rated) if rated else None
    low, high = wilson_interval(rate or 0.0, len(rated))
    return WinRate(
        prompts=len(pairs),
        wins=wins,
        losses=losses,
        ties=len(rated) - wins - losses,
        not_rated=len(pairs) - len(rated),
        win_rate=rate,
        low=low,
        high=high,
        mean_reward=(_mean(answers_a), _mean(answers_b)),
        cut=(sum(a.is_cut for a in answers_a), sum(b.is_cut for b in answers_b)),
    )


def wilson_interval(rate: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of the true rate after ``count`` prompts."""
    if not count:
        return 0.0, 1.0
    square = Z * Z / count
    center = (rate + square / 2) / (1 + square)
    half = Z * math.sqrt(rate * (1 - rate) / count + square / (4 * count)) / (1 + square)
    return max(center - half, 0.0), min(center + half, 1.0)


def summary_text(result: WinRate) -> str:
    """Return the result as text."""
    means = ["not rated" if mean is None else f"{mean:.4f}" for mean in result.mean_reward]
    rate = (
        f"{result.win_rate:.1%}, with 95 % certainty {result.low:.1%} to {result.high:.1%}"
        if (result.win_rate is not None)
        else "not known: the judge rated no prompt"
    )
    lines = [
        f"A wins {result.wins}, B wins {result.losses}, ties {result.ties}; "
        f"prompts {result.prompts}",
        f"win rate of A: {rate}",
        "mean reward: A {}, B {}".format(*means),
    ]
    if any(result.cut):
        lines.append("cut off at --max-tokens: A {}, B {}".format(*result.cut))
    if result.not_rated:
        lines.append(f"not rated: {result.not_rated}")
    if result.win_rate is not None and result.low <= 0.5 <= result.high:
        lines.append("That is no difference yet; more prompts may show one.")
    return "\n".join(lines) + "\n"


def _lead(a: RatedAnswer, b: RatedAnswer) -> float | None:
    if a.text == b.text:
        return 0.0
    if a.reward is None or b.reward is None:
        return None
    return a.reward - b.reward


def _mean(answers: Sequence[RatedAnswer]) -> float | None:
    rewards = [t.reward for t in answers if t.reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else None
