"""Grading many answers while other ranks wait."""

from collections.abc import Sequence

from trainer.graders.answer import Grade, ModelAnswer
from trainer.rollout.collector import SLICE, TIMEOUT_MESSAGE, TIMEOUT_SECONDS, grade_in_slices

ANSWERS = [ModelAnswer(str(n), {}) for n in range(3 * SLICE)]


class Slow:
    """A grader that takes ``seconds`` for a slice."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.clock, self.slices = seconds, 0.0, 0

    def now(self) -> float:
        return self.clock

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        self.clock += self.seconds
        self.slices += 1
        return [Grade(float(answer.text)) for answer in answers]

    def close(self) -> None: ...


def test_every_answer_gets_its_grade_in_order() -> None:
    found = grade_in_slices(grader := Slow(1.0), ANSWERS, lambda: False, grader.now)

    assert [grade.score for grade in found] == list(range(3 * SLICE))
    assert not any(grade.error for grade in found)


def test_what_there_is_no_time_for_is_an_error_and_not_a_grade() -> None:
    grader = Slow(TIMEOUT_SECONDS + 1)
    found = grade_in_slices(grader, ANSWERS, lambda: False, grader.now)

    assert grader.slices == 1
    assert [grade.error for grade in found] == [""] * SLICE + [TIMEOUT_MESSAGE] * 2 * SLICE


class Picky(Slow):
    """Cannot read one of the answers."""

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        if any(answer.text == "3" for answer in answers):
            raise KeyError("content")
        return super().grade(answers)


def test_an_answer_on_which_a_grader_breaks_is_an_error_of_that_answer_alone() -> None:
    found = grade_in_slices(grader := Picky(0.1), ANSWERS, lambda: False, grader.now)

    assert [n for n, grade in enumerate(found) if grade.error] == [3]
    assert found[3].error == "KeyError: 'content'"
    assert found[4].score == 4.0


def test_once_a_stop_is_asked_nothing_more_is_graded() -> None:
    grader = Slow(1.0)
    found = grade_in_slices(grader, ANSWERS, lambda: grader.slices == 1, grader.now)

    assert grader.slices == 1
    assert len(found) == len(ANSWERS)
