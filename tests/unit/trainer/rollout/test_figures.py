"""Grading many answers, and what their grades say of a step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.graders.answer import Grade, ModelAnswer
from trainer.process.non_retryable import record_non_retryable
from trainer.rollout.collector import SLICE, TIMEOUT_MESSAGE, TIMEOUT_SECONDS, grade_in_slices
from trainer.rollout.reward_metrics import (
    GradingFailedError,
    RewardSummary,
    RewardSums,
    sum_rewards_over_ranks,
)
from trainer.rundir import RunDir

pytestmark = pytest.mark.usefixtures("world_of_one")

CPU = torch.device("cpu")


def test_means_are_over_answers() -> None:
    figures = RewardSums(
        answers=4, grades=3.0, tokens=50, kl=2.0, errors=1, error="a.jsonl, line 2"
    )
    summed = sum_rewards_over_ranks(figures, CPU, GRADED)

    assert summed.members == {
        "reward": 1.0,  # of the three that could be graded
        "kl": 2 / 3,
        "answer_tokens": 12.5,
        "grader_errors": 1,
    }
    assert summed.error.startswith("1 of 4 answers could not be graded")
    assert summed.error.endswith("a.jsonl, line 2")


def test_a_step_without_a_rollout_says_nothing_of_grades() -> None:
    assert sum_rewards_over_ranks(None, CPU, GRADED) == RewardSummary(differ=False)
    assert sum_rewards_over_ranks(None, CPU, None).differ  # rows of a file have none


def test_prompts_that_leave_no_room_show_as_answers_of_no_tokens() -> None:
    summed = sum_rewards_over_ranks(RewardSums(), CPU, GRADED)

    assert (summed.members, summed.differ) == ({"answer_tokens": 0.0}, False)
    without_reference = RewardSums(answers=1, grades=1.0, tokens=2)
    assert sum_rewards_over_ranks(without_reference, CPU, GRADED).members["kl"] is None


@pytest.mark.parametrize(("grades", "differ"), [([0.1] * 3, False), ([0.1, 0.1, 0.2], True)])
def test_a_critic_learns_from_answers_to_different_prompts(
    grades: list[float], differ: bool
) -> None:
    figures = RewardSums(answers=3, grades=sum(grades), squares=sum(g * g for g in grades))

    assert sum_rewards_over_ranks(figures, CPU, replace(GRADED, algorithm="ppo")).differ is differ
    assert not sum_rewards_over_ranks(
        figures, CPU, GRADED
    ).differ  # these compare those to one prompt
    assert sum_rewards_over_ranks(replace(figures, uneven=1), CPU, GRADED).differ


def test_a_grader_that_fails_on_every_answer_ends_the_run_and_says_how_to_mend_it(
    tmp_path: Path,
) -> None:
    figures = RewardSums(answers=4, tokens=50, errors=4, error="line 2: KeyError: 'x'")
    rundir = RunDir(tmp_path)

    with (
        pytest.raises(GradingFailedError, match="on all 4 answers"),
        record_non_retryable(rundir, 0),
    ):
        sum_rewards_over_ranks(figures, CPU, GRADED)

    assert "line 2: KeyError: 'x'. Mend the grader" in rundir.non_retryable(0).read_text()


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
    grades = grade_in_slices(grader := Slow(1.0), ANSWERS, lambda: False, grader.now)

    assert [grade.score for grade in grades] == list(range(3 * SLICE))
    assert not any(grade.error for grade in grades)


def test_what_there_is_no_time_for_is_an_error_and_not_a_grade() -> None:
    grader = Slow(TIMEOUT_SECONDS + 1)
    grades = grade_in_slices(grader, ANSWERS, lambda: False, grader.now)

    assert grader.slices == 1
    assert [grade.error for grade in grades] == [""] * SLICE + [TIMEOUT_MESSAGE] * 2 * SLICE


class Picky(Slow):
    """Cannot read one of the answers."""

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        if any(answer.text == "3" for answer in answers):
            raise KeyError("content")
        return super().grade(answers)


def test_an_answer_on_which_a_grader_breaks_is_an_error_of_that_answer_alone() -> None:
    grades = grade_in_slices(grader := Picky(0.1), ANSWERS, lambda: False, grader.now)

    assert [n for n, grade in enumerate(grades) if grade.error] == [3]
    assert grades[3].error == "KeyError: 'content'"
    assert grades[4].score == 4.0


def test_once_a_stop_is_asked_nothing_more_is_graded() -> None:
    grader = Slow(1.0)
    grades = grade_in_slices(grader, ANSWERS, lambda: grader.slices == 1, grader.now)

    assert grader.slices == 1
    assert len(grades) == len(ANSWERS)
