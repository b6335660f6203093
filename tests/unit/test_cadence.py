"""How often to save: the interval that loses the least, planned and then measured."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.domain import cadence as planned
from service.domain.layout import Layout
from trainer.checkpoint.saver import Cost
from trainer.checkpoint.saves import Saves
from trainer.contract import Cadence, best_interval
from trainer.state import State

HOURLY = Cadence(evictions_per_hour=0.075, answered=0.0, seconds_per_block=0.0)


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


def test_a_save_that_fits_into_a_notice_is_planned_less_often() -> None:
    rates = {"evictions_per_hour": 0.075, "dollars_per_hour": 3.6}
    whole, _ = planned.plan(layout(1), 7_000_000_000, step=5.0, **rates)
    adapters, rests = planned.plan(layout(1), 160_000_000, step=5.0, **rates)

    assert rests.answered == planned.ANSWERED
    assert planned.plan(layout(1), 7_000_000_000, step=5.0, **rates)[1].answered == 0.0
    assert whole > 90.0  # its upload alone
    assert adapters < whole


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
    saves = Saves(saver, 10.0, lambda: next(clock), 0, HOURLY)  # type: ignore[arg-type]
    first = saves.due()
    saves.periodic(State(step=1), congested=False)
    on_its_way = saves.due()
    saver.busy = False

    assert first
    assert not on_its_way
    assert not saves.due()  # 30 s for the upload: from now on every 219 s
    assert not saves.due()
    assert saves.due()
