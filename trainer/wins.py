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


def compare_answers(ours: Sequence[RatedAnswer], theirs: Sequence[RatedAnswer]) -> WinRate:
    """Compare the answers prompt by prompt."""
    pairs = list(zip(ours, theirs, strict=True))
    leads = [_lead(a, b) for a, b in pairs]
    known = [lead for lead in leads if lead is not None]
    wins, losses = sum(lead > 0 for lead in known), sum(lead < 0 for lead in known)
    rate = (wins + (len(known) - wins - losses) / 2) / len(known) if known else None
    low, high = wilson_interval(rate or 0.0, len(known))
    return WinRate(
        prompts=len(pairs),
        wins=wins,
        losses=losses,
        ties=len(known) - wins - losses,
        not_rated=len(pairs) - len(known),
        win_rate=rate,
        low=low,
        high=high,
        mean_reward=(_mean(ours), _mean(theirs)),
        cut=(sum(a.is_cut for a in ours), sum(b.is_cut for b in theirs)),
    )


def wilson_interval(rate: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of the true rate after ``count`` prompts."""
    if not count:
        return 0.0, 1.0
    square = Z * Z / count
    middle = (rate + square / 2) / (1 + square)
    half = Z * math.sqrt(rate * (1 - rate) / count + square / (4 * count)) / (1 + square)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def summary_text(found: WinRate) -> str:
    """Return the result as text."""
    means = ["not rated" if mean is None else f"{mean:.4f}" for mean in found.mean_reward]
    rate = (
        f"{found.win_rate:.1%}, with 95 % certainty {found.low:.1%} to {found.high:.1%}"
        if (found.win_rate is not None)
        else "not known: the judge rated no prompt"
    )
    lines = [
        f"A wins {found.wins}, B wins {found.losses}, ties {found.ties}; prompts {found.prompts}",
        f"win rate of A: {rate}",
        "mean reward: A {}, B {}".format(*means),
    ]
    if any(found.cut):
        lines.append("cut off at --max-tokens: A {}, B {}".format(*found.cut))
    if found.not_rated:
        lines.append(f"not rated: {found.not_rated}")
    if found.win_rate is not None and found.low <= 0.5 <= found.high:
        lines.append("That is no difference yet; more prompts may show one.")
    return "\n".join(lines) + "\n"


def _lead(ours: RatedAnswer, theirs: RatedAnswer) -> float | None:
    if ours.text == theirs.text:
        return 0.0
    if ours.reward is None or theirs.reward is None:
        return None
    return ours.reward - theirs.reward


def _mean(told: Sequence[RatedAnswer]) -> float | None:
    known = [t.reward for t in told if t.reward is not None]
    return math.fsum(known) / len(known) if known else None
