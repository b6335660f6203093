"""Metrics of a step's rewards."""

from dataclasses import dataclass, field
from typing import Any

import torch

from trainer.contract import Reinforcement
from trainer.process.non_retryable import NonRetryableError
from trainer.process.sync_flags import sum_over_ranks

ROUNDING = 1e-9  # of a sum of squares


@dataclass(frozen=True, kw_only=True)
class RewardSums:
    """Sums over the answers that one rank graded for a step."""

    answers: int = 0
    grades: float = 0.0
    squares: float = 0.0  # of the grades
    uneven: int = 0  # prompts whose answers have different grades
    tokens: int = 0
    kl: float | None = None  # nats; None where no reference is kept
    errors: int = 0
    error: str = ""  # the first one


class GradingFailedError(NonRetryableError):
    """Every answer of a step failed to be graded, so there is nothing to learn from."""


@dataclass(frozen=True, kw_only=True)
class RewardSummary:
    """Metrics over the answers of all ranks."""

    members: dict[str, Any] = field(default_factory=dict)  # of StepMetrics
    differ: bool = True  # some answer was better than another it is compared with
    error: str = ""  # why some could not be graded, in a sentence; only where one was met


def sum_rewards_over_ranks(
    figures: RewardSums | None, device: torch.device, settings: Reinforcement | None
) -> RewardSummary:
    """Sum over the ranks; no members where nothing was graded. Collective.

    Raises GradingFailedError when the grader failed on every answer.
    """
    if figures is None:
        return RewardSummary(differ=settings is None)
    own_sums = (figures.answers, figures.grades, figures.tokens, figures.kl or 0.0, figures.errors)
    own_spread = (figures.squares, figures.uneven)
    answers, grades, tokens, kl, errors, *spread = sum_over_ranks(
        *own_sums, *own_spread, device=device
    )
    if not answers:  # no prompt left room for one
        return RewardSummary(members={"answer_tokens": 0.0}, differ=False)
    if errors == answers:
        raise GradingFailedError(
            f"the grader failed on all {int(answers)} answers of a step, so there is nothing to "
            f"learn from: {figures.error or 'another rank has the first error'}. Mend the grader, "
            "and try it on a few answers with `python -m trainer.graders`"
        )
    graded = answers - errors
    members = {
        "reward": grades / graded,
        "kl": None if figures.kl is None else kl / graded,
        "answer_tokens": tokens / answers,
        "grader_errors": int(errors),
    }
    critic = settings is not None and settings.algorithm == "ppo"
    return RewardSummary(
        members=members,
        differ=_are_uneven(graded, grades, spread[0]) if critic else spread[1] > 0,
        error=figures.error
        and f"{int(errors)} of {int(answers)} answers could not be graded and are not learnt "
        f"from; the first error is: {figures.error}",
    )


def _are_uneven(count: float, total: float, squares: float) -> bool:
    """Return whether numbers with these sums differ by more than rounding."""
    return count * squares - total * total > ROUNDING * count * squares
