"""How often to save: the interval that loses the least, planned and then measured."""

import math
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.domain import cadence as planned
from service.domain.layout import Layout
from tests.unit.trainer_spec import SPEC
from trainer.agreement import Agreement
from trainer.checkpoint.saver import Cost
from trainer.checkpoint.saves import Saves
from trainer.contract import Cadence, Saving, best_interval, rescaled
from trainer.rundir import RunDir
from trainer.state import State

HOURLY = Cadence(evictions_per_hour=0.075, answered=0.0, seconds_per_block=0.0)
OFTEN = replace(HOURLY, evictions_per_hour=4 * 0.075)
NEVER = replace(HOURLY, evictions_per_hour=0.0)
TOLD = replace(SPEC, checkpoint_seconds=10.0, cadence=HOURLY)


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
    others = [5.0 * 1.1**n for n in range(70)]
    reachable = [t for t in others if t >= upload - stall]

    ours = goodput(best, stall, upload, cadence)
    assert ours >= max(goodput(t, stall, upload, cadence) for t in reachable) - 0.005


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


def test_the_time_reserved_for_a_save_follows_what_is_saved_and_by_how_many() -> None:
    def seconds(trained: int, nodes: int = 1, step: float = 1.0) -> float:
        return planned.seconds_to_save(layout(nodes), trained, step=step, nodes=nodes)

    adapter, whole = seconds(5_000_000), seconds(8_000_000_000)

    assert 30 < adapter < 60
    assert 7 * 60 < whole < 15 * 60
    assert seconds(8_000_000_000, nodes=4) < whole / 2
    assert seconds(5_000_000, step=100.0) == pytest.approx(adapter + 198)


def test_a_save_that_fits_into_a_notice_is_planned_less_often() -> None:
    rates: dict[str, Any] = {"evictions_per_hour": 0.075, "dollars_per_hour": 3.6}
    whole, _ = planned.plan(layout(1), 7_000_000_000, step=5.0, **rates)
    adapters, rests = planned.plan(layout(1), 160_000_000, step=5.0, **rates)

    assert rests.answered == planned.ANSWERED
    assert planned.plan(layout(1), 7_000_000_000, step=5.0, **rates)[1].answered == 0.0
    assert whole > 90.0  # its upload alone
    assert adapters < whole


def test_where_evictions_come_without_notice_one_saves_more_often() -> None:
    rates: dict[str, Any] = {"evictions_per_hour": 0.075, "dollars_per_hour": 3.6}
    told, _ = planned.plan(layout(8), 7_000_000_000, step=5.0, **rates)
    untold, rests = planned.plan(layout(8), 7_000_000_000, step=5.0, **rates, noticed=False)

    assert rests.answered == 0.0
    assert untold < told


@dataclass
class Saver:
    """Costs what it is told to."""

    cost: Cost = field(default_factory=lambda: Cost(stall=0.5, blocks=0))
    busy: bool = False

    def save(self, *_: Any) -> None:  # noqa: ANN401
        self.busy = True


def test_what_a_save_has_cost_changes_the_interval() -> None:
    clock = iter([0.0, 10.0, 10.0, 12.0, 40.0, 40.0, 100.0, 270.0])
    saver = Saver()
    saves = Saves(saver, TOLD, lambda: next(clock), 0)  # type: ignore[arg-type]
    first = saves.due(1)
    saves.periodic(State(step=1), congested=False)
    on_its_way = saves.due(1)
    saver.busy = False

    assert first
    assert not on_its_way
    assert not saves.due(1)  # 30 s for the upload: from now on every 219 s
    assert not saves.due(1)
    assert saves.due(1)


@dataclass
class Telling:
    """Saves of a trainer that is told things, by a clock that stands still."""

    cadence: Cadence | None = HOURLY
    every: float = 100.0
    told: Cadence | None = None
    said: list[Saving] = field(default_factory=list)
    saver: Saver = field(default_factory=Saver)
    now: float = 0.0

    def __post_init__(self) -> None:
        spec = replace(SPEC, checkpoint_seconds=self.every, cadence=self.cadence)
        self.saves = Saves(
            self.saver,  # type: ignore[arg-type]
            spec,
            lambda: self.now,
            0,
            lambda: self.told,
            self.said.append,
        )

    def save(self, upload: float) -> None:
        """Save now; it is committed so many seconds later."""
        self.saves.periodic(State(step=1), congested=False)
        self.now += upload
        self.saver.busy = False
        self.saves.due(1)


def test_before_a_save_was_measured_the_interval_goes_by_the_root_of_the_evictions() -> None:
    trainer = Telling()

    trainer.told = OFTEN
    trainer.saves.due(1)
    trainer.told = NEVER
    trainer.saves.due(1)
    trainer.told = HOURLY
    trainer.saves.due(1)

    assert [round(said.every) for said in trainer.said] == [50, 3600, 100]
    assert [said.cost for said in trainer.said] == [None] * 3


def test_what_a_trainer_is_told_counts_with_what_its_saves_were_measured_to_cost() -> None:
    trainer = Telling()
    trainer.save(upload=2.0)
    trainer.told = OFTEN
    trainer.saves.due(1)
    trainer.saves.due(1)

    measured, told = trainer.said
    best = best_interval(HOURLY, stall=0.5, upload=2.0, blocks=0)
    assert measured.every == pytest.approx(best)
    assert told.every == pytest.approx(best / 2)
    assert told.cost == measured.cost


def test_a_save_that_is_overdue_by_what_is_told_is_due_at_once() -> None:
    trainer = Telling()
    trainer.now = 60.0
    before = trainer.saves.due(1)
    trainer.told = OFTEN

    assert not before
    assert trainer.saves.due(1)


def test_what_rank_0_cannot_read_ends_no_training_and_what_it_heard_last_holds(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, before))
    agreement = Agreement(RunDir(tmp_path), None, lambda: False, lambda: None)
    told = RunDir(tmp_path).cadence

    nothing = agreement.cadence()
    told.write_text(OFTEN.to_json())
    heard = [agreement.cadence()]
    for nonsense in (b"{", b"\xff", b'{"more": 1}'):
        told.write_bytes(nonsense)
        heard.append(agreement.cadence())
    told.unlink()
    told.mkdir()
    heard.append(agreement.cadence())

    assert nothing is None
    assert heard == [OFTEN] * 5


def test_an_interval_that_the_user_fixed_is_never_touched() -> None:
    trainer = Telling(cadence=None)
    trainer.told = OFTEN
    trainer.now = 99.0

    assert not trainer.saves.due(1)
    assert trainer.said == []


def test_each_multiple_of_a_milestone_is_saved_however_long_the_interval() -> None:
    saver, spec = Saver(), replace(SPEC, checkpoint_seconds=3600.0, milestone_every_steps=10)
    saves = Saves(saver, spec, lambda: 0.0, 7)  # type: ignore[arg-type]  # resumed at step 7
    saved = []
    for step in range(8, 35):
        if saves.due(step):
            congested = step in {20, 21}  # earlier saves are on their way
            saves.periodic(State(step=step), congested=congested)
            saved += [] if congested else [step]

    assert saved == [10, 22, 30]


@given(st.floats(5.0, 3600.0), st.floats(0.001, 20.0), st.floats(0.001, 20.0))
def test_more_evictions_never_make_an_interval_longer(every: float, one: float, two: float) -> None:
    few, many = (replace(HOURLY, evictions_per_hour=e) for e in sorted((one, two)))

    assert rescaled(every, few, many) <= every * (1 + 1e-9)
    assert rescaled(every, many, few) >= every * (1 - 1e-9)
