"""Which committed checkpoints HEAD keeps, and why."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.nodes.scripted_node import committed, metrics
from trainer.contract import MILESTONES_KEPT, Committed, Head, Retention, StaleGeneration
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports


def entry(step: int, valid_loss: float | None = None) -> Committed:
    """Return a checkpoint of generation 1."""
    return replace(committed(step, 1), valid_loss=valid_loss)


def grown(retention: Retention, entries: Sequence[Committed], loaded: str = "") -> Head:
    """HEAD after these commits."""
    head = Head(generation=1)
    for entry in entries:
        head = head.with_checkpoint(entry, retention, loaded)
    return head


def retention_reasons(head: Head) -> dict[int, str]:
    """Why HEAD keeps the checkpoint of each step."""
    return {c.step: head.kept_as(c) for c in head.checkpoints}


def test_the_newest_are_kept_as_many_as_the_job_says() -> None:
    head = grown(Retention(newest=2), [entry(step) for step in range(5)])

    assert retention_reasons(head) == {3: "recent", 4: "recent"}


def test_nothing_older_is_committed_than_what_is_there() -> None:
    head = grown(Retention(), [entry(5)])

    for stale in (entry(4), replace(entry(6), generation=0)):
        with pytest.raises(StaleGeneration):
            head.with_checkpoint(stale)


def test_the_best_is_kept_until_a_better_one_comes() -> None:
    losses = (0.9, 0.3, 0.8, 0.7)
    first = grown(Retention(newest=1), [entry(step, loss) for step, loss in enumerate(losses)])
    second = first.with_checkpoint(entry(9, 0.2), Retention(newest=1))

    assert retention_reasons(first) == {1: "best", 3: "recent"}
    assert retention_reasons(second) == {9: "best"}


def test_of_equally_good_ones_the_oldest_is_the_best_and_a_loss_that_is_no_number_is_none() -> None:
    head = grown(Retention(newest=4), [entry(1, math.nan), entry(2, 0.5), entry(3, 0.5), entry(4)])

    assert head.best == entry(2, 0.5)
    assert Head(generation=1, checkpoints=(entry(1), entry(2, math.nan))).best is None


def test_the_first_checkpoint_at_or_after_each_multiple_is_a_milestone() -> None:
    steps = (40, 90, 100, 130, 210, 290, 500, 520, 530)
    head = grown(Retention(newest=1, milestone_every=100), [entry(step) for step in steps])

    assert retention_reasons(head) == {
        100: "milestone",
        210: "milestone",
        500: "milestone",
        530: "recent",
    }


def test_what_the_generation_started_from_stays_however_many_are_committed() -> None:
    start = entry(1)
    head = grown(Retention(newest=1), [start, *map(entry, range(2, 9))], start.path)

    assert [c.step for c in head.checkpoints] == [1, 8]
    assert [c.step for c in head.with_checkpoint(entry(9), Retention(newest=1)).checkpoints] == [9]


def test_once_the_model_is_there_what_the_generation_started_from_goes() -> None:
    start = entry(1)
    head = grown(Retention(newest=2), [start, *map(entry, range(2, 9))], start.path)

    ended = head.with_model(replace(entry(9), kind="final"), Retention(newest=2))

    assert retention_reasons(ended) == {7: "recent", 8: "recent"}


def test_head_stays_small_however_many_milestones_are_asked_for() -> None:
    every = Retention(newest=1, milestone_every=1)
    head = grown(every, [entry(step) for step in range(1, 3 * MILESTONES_KEPT)])

    assert sum(c.milestone for c in head.checkpoints) == MILESTONES_KEPT
    assert len(head.checkpoints) == MILESTONES_KEPT + 1
    assert len(head.to_json()) < 64 * 1024


def test_taking_head_lets_go_of_what_is_broken_and_of_nothing_else() -> None:
    head = Head(generation=1, checkpoints=(entry(1), entry(2), entry(3)))
    fenced = head.fenced(2, {entry(3).path, "checkpoints/of-another-job"})

    assert fenced == Head(generation=2, checkpoints=(entry(1), entry(2)))
    assert fenced.fenced(2, {entry(3).path}) == fenced


def test_the_steps_of_a_milestone_that_broke_make_another_one() -> None:
    every = Retention(newest=3, milestone_every=100)
    head = grown(every, [entry(90), entry(105)])
    back = head.fenced(1, {entry(105).path}).with_checkpoint(entry(110), every)

    assert retention_reasons(back) == {90: "recent", 110: "milestone"}


def test_a_checkpoint_has_the_loss_that_was_measured_last_before_it_in_the_same_run() -> None:
    reports = HeartbeatReports()
    reports.add_metrics([replace(metrics(10), valid_loss=0.5), metrics(11)])
    reports.add_metrics([replace(metrics(20), valid_loss=float("nan"))])
    reports.add_metrics([replace(metrics(30), valid_loss=0.4)])

    assert [reports.valid_loss(step) for step in (9, 10, 29, 30, 99)] == [None, 0.5, 0.5, 0.4, 0.4]
    reports.begin_run(8)
    assert reports.valid_loss(99) is None
