"""What a rollout's grades say of a step, as its metrics have it."""

from typing import Any

import torch

from trainer.prepared import Figures
from trainer.sums import over_ranks


class NothingGraded(Exception):
    """Not one answer of a step could be graded; the model would learn from nothing."""


def grades_over_ranks(figures: Figures | None, device: torch.device) -> dict[str, Any]:
    """Members of StepMetrics; none where nothing was graded. Collective.

    Raises NothingGraded when the grader failed on every answer.
    """
    if figures is None:
        return {}
    mine = (figures.answers, figures.grades, figures.tokens, figures.kl, figures.errors)
    answers, grades, tokens, kl, errors = over_ranks(*mine, device=device)
    if not answers:
        return {}
    if errors == answers:
        raise NothingGraded(
            f"the grader failed on all {int(answers)} answers of a step, so there is nothing to "
            f"learn from: {figures.error or 'another rank has the first error'}. Mend the grader, "
            "and try it on a few answers with `python -m trainer.graders`"
        )
    return {
        "reward": grades / answers,
        "kl": kl / answers,
        "answer_tokens": tokens / answers,
        "grader_errors": int(errors),
    }
