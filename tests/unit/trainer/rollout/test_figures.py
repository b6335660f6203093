"""What grades say of a step, and when there is nothing to learn from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.process.non_retryable import record_non_retryable
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
    found = sum_rewards_over_ranks(figures, CPU, GRADED)

    assert found.members == {
        "reward": 1.0,  # of the three that could be graded
        "kl": 2 / 3,
        "answer_tokens": 12.5,
        "grader_errors": 1,
    }
    assert found.error.startswith("1 of 4 answers could not be graded")
    assert found.error.endswith("a.jsonl, line 2")


def test_a_step_without_a_rollout_says_nothing_of_grades() -> None:
    assert sum_rewards_over_ranks(None, CPU, GRADED) == RewardSummary(differ=False)
    assert sum_rewards_over_ranks(None, CPU, None).differ  # rows of a file have none


def test_prompts_that_leave_no_room_show_as_answers_of_no_tokens() -> None:
    found = sum_rewards_over_ranks(RewardSums(), CPU, GRADED)

    assert (found.members, found.differ) == ({"answer_tokens": 0.0}, False)


def test_where_no_reference_is_kept_no_divergence_is_claimed() -> None:
    figures = RewardSums(answers=1, grades=1.0, tokens=2)

    assert sum_rewards_over_ranks(figures, CPU, GRADED).members["kl"] is None


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
