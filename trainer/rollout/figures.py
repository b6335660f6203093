"""What a rollout's grades say of a step, as its metrics have it."""

from dataclasses import dataclass
from typing import Any

import torch

from trainer.hopeless import Hopeless
from trainer.sums import over_ranks


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Sums over the answers that one rank has had graded for a step."""

    answers: int = 0
    grades: float = 0.0
    tokens: int = 0
    kl: float | None = None  # nats; None where no reference is kept
    errors: int = 0
    error: str = ""  # the first one


class NothingGraded(Hopeless):
    """Not one answer of a step could be graded; the model would learn from nothing."""


def grades_over_ranks(figures: Figures | None, device: torch.device) -> dict[str, Any]:
    """Members of StepMetrics; none where nothing was graded. Collective.

    Raises NothingGraded when the grader failed on every answer.
    """
    if figures is None:
        return {}
    mine = (figures.answers, figures.grades, figures.tokens, figures.kl or 0.0, figures.errors)
    answers, grades, tokens, kl, errors = over_ranks(*mine, device=device)
    if not answers:
        return {"answer_tokens": 0.0}  # no prompt left room for one
    if errors == answers:
        raise NothingGraded(
            f"the grader failed on all {int(answers)} answers of a step, so there is nothing to "
            f"learn from: {figures.error or 'another rank has the first error'}. Mend the grader, "
            "and try it on a few answers with `python -m trainer.graders`"
        )
    known = answers - errors
    return {
        "reward": grades / known,
        "kl": None if figures.kl is None else kl / known,
        "answer_tokens": tokens / answers,
        "grader_errors": int(errors),
    }
