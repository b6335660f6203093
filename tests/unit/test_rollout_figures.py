"""What grades say of a step, and when there is nothing to learn from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from trainer.hopeless import told
from trainer.rollout.figures import Figures, NothingGraded, grades_over_ranks
from trainer.rundir import RunDir

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def world_of_one() -> Iterator[None]:
    """A process group with this process alone in it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_means_are_over_answers() -> None:
    figures = Figures(answers=4, grades=3.0, tokens=50, kl=2.0, errors=1, error="too long")

    assert grades_over_ranks(figures, CPU) == {
        "reward": 1.0,  # of the three that could be graded
        "kl": 2 / 3,
        "answer_tokens": 12.5,
        "grader_errors": 1,
    }


def test_a_step_without_a_rollout_says_nothing_of_grades() -> None:
    assert grades_over_ranks(None, CPU) == {}


def test_prompts_that_leave_no_room_show_as_answers_of_no_tokens() -> None:
    assert grades_over_ranks(Figures(), CPU) == {"answer_tokens": 0.0}


def test_where_no_reference_is_kept_no_divergence_is_claimed() -> None:
    assert grades_over_ranks(Figures(answers=1, grades=1.0, tokens=2), CPU)["kl"] is None


def test_a_grader_that_fails_on_every_answer_ends_the_run_and_says_how_to_mend_it(
    tmp_path: Path,
) -> None:
    figures = Figures(answers=4, tokens=50, errors=4, error="line 2: KeyError: 'x'")
    rundir = RunDir(tmp_path)

    with pytest.raises(NothingGraded, match="on all 4 answers"), told(rundir, 0):
        grades_over_ranks(figures, CPU)

    assert "line 2: KeyError: 'x'. Mend the grader" in rundir.hopeless(0).read_text()
