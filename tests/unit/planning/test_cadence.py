"""How often to save: the interval that loses the least, by the plan and by what was measured."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.domain.performance.layout import Layout
from service.domain.planning import checkpoint_interval as planned
from service.domain.planning.checkpoint_interval import (
    Cadence,
    CheckpointInterval,
    SaveHistory,
    best_interval,
)
from tests.unit.attempts.attempt_facts import GENERATION
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.checkpoint.save_schedule import SaveSchedule
from trainer.checkpoint.saver import SaveStall
from trainer.contract import SaveCost
from trainer.state import TrainingState

HOURLY = Cadence(evictions_per_hour=0.075, answered=0.0, seconds_per_block=0.0)
NEVER = replace(HOURLY, evictions_per_hour=0.0)


def goodput(interval: float, stall: float, upload: float, cadence: Cadence) -> float:
    """Of the time between recoveries; `p A + (1 - p) B` of research, exact for Poisson."""
    rate, period = cadence.evictions_per_hour / 3600, interval + stall
    noticed = (1 - math.exp(-rate * interval)) / (rate * (1 - math.exp(-rate * period)))
    durable = interval * math.exp(-rate * upload) / math.expm1(rate * period)
    return (cadence.answered * noticed + (1 - cadence.answered) * durable) * rate


def test_without_notice_and_upload_it_is_youngs_formula() -> None:
    assert best_interval(HOURLY, stall=0.82, upload=0.0, blocks=0) == pytest.approx(
        math.sqrt(2 * 0.82 / (0.075 / 3600))
    )


@given(
    rate=st.floats(0.02, 4.0),
    answered=st.sampled_from([0.0, 0.5, 0.95]),
    stall=st.floats(0.02, 2.0),
    upload=st.floats(0.1, 120.0),
)
def test_no_other_interval_gives_half_a_percent_more(
    rate: float, answered: float, stall: float, upload: float
) -> None:
    cadence = replace(HOURLY, evictions_per_hour=rate, answered=answered)
    best = best_interval(cadence, stall=stall, upload=upload, blocks=0)
    assume(best < 3600.0)
    intervals = [5.0 * 1.1**n for n in range(70)]
    reachable = [t for t in intervals if t >= upload - stall]

    best_goodput = goodput(best, stall, upload, cadence)
    assert best_goodput >= max(goodput(t, stall, upload, cadence) for t in reachable) - 0.005


@given(st.floats(0.0, 10.0), st.floats(0.0, 1e4), st.integers(0, 10**6))
def test_an_interval_is_never_silly(stall: float, upload: float, blocks: int) -> None:
    priced = replace(HOURLY, seconds_per_block=0.005)

    assert 5.0 <= best_interval(priced, stall=stall, upload=upload, blocks=blocks) <= 3600.0
    never = replace(HOURLY, evictions_per_hour=0.0)
    assert best_interval(never, stall=stall, upload=upload, blocks=blocks) == 3600.0


def layout(nodes: int) -> Layout:
    return Layout(
        nodes=nodes,
        processes_per_node=8,
        zero_stage=3,
        micro_batch=1,
        accumulation=4,
        memory=None,  # type: ignore[arg-type] # nobody asks for it
        recipe=None,  # type: ignore[arg-type]
    )


def test_the_time_reserved_for_a_save_follows_what_is_saved_and_decides_how_often() -> None:
    def seconds(trained: int, nodes: int = 1, step: float = 1.0) -> float:
        return planned.seconds_to_save(layout(nodes), trained, step=step, nodes=nodes)

    adapter, full = seconds(5_000_000), seconds(8_000_000_000)

    assert 30 < adapter < 60
    assert 7 * 60 < full < 15 * 60
    assert seconds(8_000_000_000, nodes=4) < full / 2
    assert seconds(5_000_000, step=100.0) == pytest.approx(adapter + 198)

    rates: dict[str, Any] = {"evictions_per_hour": 0.075, "dollars_per_hour": 3.6}
    seldom, _ = planned.plan_interval(layout(1), 7_000_000_000, step=5.0, **rates)
    often, rests = planned.plan_interval(layout(1), 160_000_000, step=5.0, **rates)
    assert rests.answered == planned.ANSWERED
    assert planned.plan_interval(layout(1), 7_000_000_000, step=5.0, **rates)[1].answered == 0.0
    assert often < seldom
    assert seldom > 90.0  # its upload alone


@dataclass
class Saver:
    """Costs what it is told to."""

    cost: SaveStall = field(default_factory=lambda: SaveStall(stall=0.5, blocks=0))
    busy: bool = False

    def save(self, *_: Any) -> None:  # noqa: ANN401
        self.busy = True


def test_what_a_save_has_cost_is_told_once_it_is_committed() -> None:
    saver, costs, now = Saver(), list[SaveCost](), 0.0
    saves = SaveSchedule(saver, SPEC, lambda: now, 0, costs.append)  # type: ignore[arg-type]
    saves.save_periodically(TrainingState(step=1), congested=False)
    saves.is_due(1)
    on_its_way = list(costs)
    saver.busy, now = False, 2.0
    saves.is_due(1)
    saves.is_due(1)

    assert on_its_way == []
    assert costs == [SaveCost(stall=0.5, upload=2.0, blocks=0)]


COST = SaveCost(stall=0.5, upload=4.0, blocks=100)
PLAN = CheckpointInterval(seconds=840.0, cadence=Cadence(**vars(HOURLY) | {"answered": 0.95}))
KNOWN = SaveHistory(planned=PLAN, nodes=2, cost=COST)


def test_own_hours_and_evictions_move_the_plans_rate_once_a_save_was_measured() -> None:
    assert replace(KNOWN, cost=None, evictions=9).interval(2, 10.0) == PLAN

    quiet, stormy = (
        replace(KNOWN, trained_hours=80.0, evictions=n).interval(2, 10.0) for n in (0, 10)
    )
    assert KNOWN.interval(2, 10.0).cadence.evictions_per_hour == pytest.approx(0.075)
    assert quiet.cadence.evictions_per_hour == pytest.approx(2 / (2 / 0.075 + 80))
    assert stormy.cadence.evictions_per_hour == pytest.approx(6 * quiet.cadence.evictions_per_hour)
    assert stormy.seconds < quiet.seconds


def test_evictions_that_lost_steps_lower_the_share_of_answered_ones() -> None:
    losing, keeping = (
        replace(KNOWN, evictions=6, judged=5, unanswered=n).interval(2, 10.0) for n in (5, 0)
    )

    assert losing.cadence.answered == pytest.approx(9.5 / 15)
    assert keeping.cadence.answered == pytest.approx(14.5 / 15)
    untold = replace(KNOWN, planned=CheckpointInterval(seconds=90.0, cadence=HOURLY), evictions=5)
    assert untold.interval(2, 10.0).cadence.answered == 0.0  # no machine there hears of it


def test_with_fewer_machines_an_elastic_job_saves_less_often() -> None:
    one, two = KNOWN.interval(1, 5.0), KNOWN.interval(2, 10.0)

    assert one.cadence.evictions_per_hour == pytest.approx(two.cadence.evictions_per_hour / 2)
    assert one.cadence.seconds_per_block == pytest.approx(2 * two.cadence.seconds_per_block)
    assert one.seconds > two.seconds


def test_on_demand_is_saved_once_an_hour() -> None:
    never = CheckpointInterval(seconds=3600.0, cadence=NEVER)

    assert replace(KNOWN, planned=never).interval(2, 10.0).seconds == 3600.0
    assert planned.spot_interval({"save_every": 3600.0}) is None
    assert planned.spot_interval({"save_every": 500.0}) == 500.0


@pytest.mark.parametrize(
    "change",
    [
        {"stall": float("nan")},
        {"stall": -1.0},
        {"upload": -1.0},
        {"blocks": -1},
        {"blocks": 10**400},
    ],
)
def test_a_cost_that_cannot_be_is_kept_out_of_a_jobs_progress(change: dict[str, Any]) -> None:
    assert planned.save_cost(replace(COST, **change)) == {}
    assert planned.save_cost(COST) == {"save_cost": COST.to_plain()}


def test_a_generation_saves_as_often_as_it_says_and_else_as_the_run_spec() -> None:
    fixed = GENERATION
    chosen = replace(fixed, checkpoint_seconds=77.0)

    assert fixed.spec_of(SPEC) == SPEC
    assert chosen.spec_of(SPEC) == replace(SPEC, checkpoint_seconds=77.0)


@pytest.mark.parametrize(
    ("every", "marks"), [(0, []), (1, [*range(8, 20), *range(22, 35)]), (10, [10, 22, 30])]
)
def test_each_multiple_of_a_milestone_is_saved_however_long_the_interval(
    every: int, marks: list[int]
) -> None:
    saver, spec = Saver(), replace(SPEC, checkpoint_seconds=3600.0, milestone_every_steps=every)
    saves = SaveSchedule(saver, spec, lambda: 0.0, 7)  # type: ignore[arg-type]  # resumed at step 7
    saved = []
    for step in range(8, 35):
        if saves.is_due(step):
            congested = step in {20, 21}  # earlier saves are on their way
            saves.save_periodically(TrainingState(step=step), congested=congested)
            saved += [] if congested else [step]

    assert saved == marks


def test_a_step_that_waits_with_its_save_says_so_once_until_it_is_saved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saves = SaveSchedule(Saver(), SPEC, lambda: 0.0, 0)  # type: ignore[arg-type]  # as above
    for step, congested in enumerate([True, True, False, True], start=1):
        saves.save_periodically(TrainingState(step=step), congested=congested)

    waited = [record.args for record in caplog.records if "on their way" in record.msg]
    assert waited == [(1,), (4,)]
