"""Grade many answers while still noticing a stop and a timeout."""

from collections.abc import Callable, Sequence

from trainer.graders.answer import Grade, Grader, ModelAnswer
from trainer.process.non_retryable import RECURRING

SLICE = 8  # answers between two looks
TIMEOUT_SECONDS = (
    300.0  # seconds for all of them: half of what the other ranks wait in a collective
)
TIMEOUT_MESSAGE = f"the answers before it took the grader {TIMEOUT_SECONDS:.0f} s; make it faster"


def grade_in_slices(
    grader: Grader,
    answers: Sequence[ModelAnswer],
    stop_asked: Callable[[], bool],
    now: Callable[[], float],
) -> list[Grade]:
    """Return one grade for each answer; an error for those that there is no time for.

    After a stop request nothing more is graded: the caller drops the grades.
    """
    until, found = now() + TIMEOUT_SECONDS, list[Grade]()
    for first in range(0, len(answers), SLICE):
        some = answers[first : first + SLICE]
        if stop_asked() or now() > until:
            found += [Grade(0.0, TIMEOUT_MESSAGE)] * len(some)
        else:
            found += _grades(grader, some)
    return found


def _grades(grader: Grader, answers: Sequence[ModelAnswer]) -> list[Grade]:
    """Grade all at once; if that fails, one by one, to find the answer at fault."""
    try:
        return grader.grade(answers)
    except RECURRING as e:
        if len(answers) == 1:
            return [Grade(0.0, f"{type(e).__name__}: {e}")]
        return [grade for answer in answers for grade in _grades(grader, [answer])]
