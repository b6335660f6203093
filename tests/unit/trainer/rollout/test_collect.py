"""A rollout: what is asked, graded and left out, with a model that says what it is told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.trainer.process.trainer_spec import GRADED, ME, SPEC
from trainer.contract import Rung, RunSpec
from trainer.data.prompts import ChatPrompt
from trainer.graders.answer import Grade, ModelAnswer
from trainer.rollout.collector import RolloutCollector
from trainer.rollout.reward_metrics import RewardSums
from trainer.rollout.rollouts import RewardEvaluation, RolloutSource
from trainer.state import TrainingState

pytestmark = pytest.mark.usefixtures("world_of_one")

WIDTH = 10
SETTINGS = replace(GRADED, answers=2, at_once=4)
GRADING = replace(
    SPEC, method="reinforcement", reinforcement=SETTINGS, max_seq_len=WIDTH, micro_batch=1
)


@dataclass
class Model:
    """Answers every prompt with tokens that name its length, and remembers what it was asked."""

    asked: list[list[int]] = field(default_factory=list)
    length: int = 3

    def answers(
        self,
        prompts: Sequence[list[int]],
        draws: Sequence[tuple[int, int]] | None,  # noqa: ARG002 - a part
    ) -> list[list[int]]:
        self.asked += prompts
        return [[90 + len(prompt)] * self.length for prompt in prompts]


@dataclass
class Grader:
    """Gives what ``score`` says of the answer's text."""

    score: Callable[[str], Grade] = lambda text: Grade(float(len(text)))
    texts: list[str] = field(default_factory=list)

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        self.texts += [answer.text for answer in answers]
        return [self.score(answer.text) for answer in answers]

    def close(self) -> None: ...


class Rows:
    """Prompts of one to nine tokens, by row."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, row: int) -> ChatPrompt:
        return ChatPrompt([1] * self._lengths[row], {}, {})

    def file_and_line(self, row: int) -> str:
        return f"prompts.jsonl, line {row + 1}"


def collector(
    model: Model,
    grader: Grader,
    lengths: Sequence[int] = (2, 3),
    *,
    spec: RunSpec = GRADING,
    stop: Callable[[], bool] = lambda: False,
) -> RolloutCollector:
    """Over these rows; the tokenizer writes tokens as numbers."""
    tokenizer: Any = SimpleNamespace(
        pad_token_id=0, decode=lambda ids, **_: " ".join(map(str, ids))
    )
    return RolloutCollector(
        spec=spec,
        engine=SimpleNamespace(device=torch.device("cpu")),
        tokenizer=tokenizer,
        prompts=Rows(lengths),  # type: ignore[arg-type] # as much of it as is used
        sampler=model,  # type: ignore[arg-type]
        grader=grader,
        reference=None,
        stop=stop,
        stop_here=lambda: False,
        now=lambda: 0.0,
    )


def roll(
    rollout: RolloutCollector, micros: Sequence[Sequence[int]]
) -> tuple[list[Any], RewardSums]:
    """Run a rollout that is not stopped."""
    result = rollout.run_rollout(micros, beta=0.0, born=0)
    assert result is not None
    return result


def test_every_prompt_is_answered_as_often_as_asked_and_each_answer_graded() -> None:
    rows, figures = roll(collector(Model(), Grader()), [[0], [1]])

    assert [(row.sample, row.number) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (figures.answers, figures.tokens, figures.errors, figures.kl) == (4, 12, 0, None)


def test_an_answer_that_could_not_be_graded_is_counted_and_not_learnt_from() -> None:
    """A grade of nothing would beat every grade below zero."""

    def score(text: str) -> Grade:
        return Grade(0.0, "line 1: IndexError") if text.startswith("92") else Grade(-1.0)

    rows, figures = roll(collector(Model(), Grader(score)), [[0], [1]])

    assert len(rows) == 2
    assert {row.grade for row in rows} == {-1.0}
    assert (figures.answers, figures.errors, figures.grades) == (4, 2, -2.0)
    assert figures.error == "prompts.jsonl, line 1: line 1: IndexError"


def test_a_prompt_that_leaves_no_room_is_not_even_asked() -> None:
    model = Model()
    rows, figures = roll(collector(model, Grader(), (WIDTH, WIDTH - 1)), [[0], [1]])

    assert {len(prompt) for prompt in model.asked} == {WIDTH - 1}
    assert [row.tokens for row in rows] == [1, 1]  # and the answer is cut to its room
    assert figures.answers == 2


def test_what_was_cut_short_by_a_stop_is_dropped_however_it_was_graded() -> None:
    def stopped() -> RolloutCollector:
        stops = iter([False, True])
        grader = Grader(lambda _: Grade(0.0, "cut short"))
        return collector(Model(), grader, stop=lambda: next(stops))

    assert stopped().run_rollout([[0]], beta=0.0, born=0) is None
    assert RewardEvaluation(stopped(), ME)(None) is None  # type: ignore[arg-type] # no method is asked


def test_prompts_that_leave_no_room_are_no_part_of_a_validation() -> None:
    method: Any = None  # none is asked
    among = RewardEvaluation(collector(Model(length=1), Grader(), (WIDTH, 2)), ME)(method)
    alone = RewardEvaluation(collector(Model(length=1), Grader(), (2,)), ME)(method)
    none = RewardEvaluation(collector(Model(), Grader(), (WIDTH, WIDTH + 1)), ME)(method)

    assert among == alone == -2.0
    assert none is not None
    assert math.isnan(none)


def test_whether_any_prompt_leaves_room_is_known_without_an_answer() -> None:
    model = Model()
    feed = RolloutSource(collector(model, Grader(), (WIDTH, WIDTH - 1, WIDTH)), SETTINGS, ME)
    units = list(feed.units(TrainingState(), lambda _: 0))

    assert sum(units) == 1
    assert model.asked == []


def test_answers_of_different_grades_are_what_can_be_learnt_from() -> None:
    grades = iter([1.0, 1.0, 0.0, 1.0])
    _, figures = roll(collector(Model(), Grader(lambda _: Grade(next(grades)))), [[0], [1]])

    assert (figures.uneven, figures.squares, figures.grades) == (1, 3.0, 3.0)


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_ranks_with_little_or_nothing_to_do_answer_in_as_many_groups(micro_batch: int) -> None:
    """Or their collectives would meet others' of another place."""
    spec = replace(GRADING, micro_batch=micro_batch)
    ranks: list[list[list[int]]] = [[[0] * micro_batch] * 4, [[0]] * 4, [[]] * 4]
    counts = set()
    for micro_batches in ranks:
        looks: list[bool] = []
        rank_collector = collector(Model(), Grader(), spec=spec, stop=partial(_look, looks))
        rank_collector.run_rollout(micro_batches, beta=0.0, born=0)
        counts.add(len(looks))

    assert len(counts) == 1


def test_on_a_rung_no_more_answers_are_written_at_once_than_it_takes() -> None:
    rung = Rung(micro_batch=1, gradient_checkpointing=True)
    settings = replace(GRADING, micro_batch=8).on(rung).reinforcement

    assert settings is not None
    assert settings.at_once == SETTINGS.answers


def _look(looks: list[bool]) -> bool:
    looks.append(True)
    return False
