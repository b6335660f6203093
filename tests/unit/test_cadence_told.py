"""What a running job is told to save by: evictions where it is, answered notices, the price."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain import cadence
from service.domain.cadence import Known, Lived
from service.domain.hazard import BURST_S
from trainer.contract import Cadence, Heartbeat, HeartbeatAnswer, NodePhase, SaveCost, Saving

PLANNED = Cadence(evictions_per_hour=0.1, answered=0.95, seconds_per_block=0.001)
KNOWN = cadence.first(840.0, PLANNED, said=None, evictions=0, answered=0)
COST = SaveCost(stall=0.5, upload=4.0, blocks=100)
RATES = st.floats(0.001, 20.0)


def here(per_hour: float, known: Known = KNOWN, hourly: float = 10.0) -> Cadence:
    """Two machines that are evicted so often together."""
    return cadence.usual(known, machines=2, evictions_per_hour=per_hour / 2, hourly=hourly)


PLACED = replace(KNOWN, said=here(0.1), told=here(0.1))


def test_own_machine_hours_move_the_band_that_counts_for_two_evictions() -> None:
    quiet = Lived(machine_hours=80.0)
    stormy = Lived(machine_hours=80.0, evictions=10)

    assert cadence.evictions_per_hour(0.05, Lived()) == pytest.approx(0.05)
    assert cadence.evictions_per_hour(0.05, quiet) == pytest.approx(2 / 120)
    assert cadence.evictions_per_hour(0.05, stormy) == pytest.approx(12 / 120)


def test_an_eviction_next_door_raises_them_for_minutes_and_no_longer() -> None:
    soon, later = (cadence.raised(PLANNED, Lived(evicted_s=s)) for s in (BURST_S - 1, BURST_S))

    assert soon.evictions_per_hour == pytest.approx(3.5 * PLANNED.evictions_per_hour)
    assert later == cadence.raised(PLANNED, Lived()) == PLANNED


def test_evictions_that_lost_nothing_raise_the_share_of_answered_ones_and_others_lower_it() -> None:
    assert cadence.share_answered(0.95, 0, 0) == pytest.approx(0.95)
    assert cadence.share_answered(0.95, 5, 0) == pytest.approx(9.5 / 15)
    assert cadence.share_answered(0.0, 10, 10) == pytest.approx(0.5)


def test_on_demand_is_saved_once_an_hour() -> None:
    calm = here(0.0)

    assert KNOWN.seconds(calm, None) == KNOWN.seconds(calm, COST) == 3600.0
    assert cadence.moved(PLANNED, calm)
    assert cadence.moved(calm, PLANNED)


@given(RATES, st.lists(st.floats(0.0, 0.249), min_size=1, max_size=30))
def test_noise_below_a_quarter_is_told_once_at_most(rate: float, noise: list[float]) -> None:
    told, times = here(100.0), 0
    for more in noise:
        now = here(rate * (1 + more))
        if cadence.moved(told, now):
            told, times = now, times + 1

    assert times <= 1


@given(RATES, RATES)
def test_what_moved_one_way_has_moved_the_other_way_too(one: float, two: float) -> None:
    assert cadence.moved(here(one), here(two)) == cadence.moved(here(two), here(one))


@given(RATES, RATES, st.sampled_from([None, COST]))
def test_more_evictions_are_never_saved_for_less_often(
    one: float, two: float, cost: SaveCost | None
) -> None:
    few, many = (here(rate) for rate in sorted((one, two)))

    assert KNOWN.seconds(many, cost) <= KNOWN.seconds(few, cost) * (1 + 1e-9)


@given(RATES, RATES)
def test_what_is_told_is_stored_and_read_again_unchanged(one: float, two: float) -> None:
    known = replace(KNOWN, told=here(one), said=here(two), since=1.5)

    assert Known.from_json(known.to_json()) == known


def test_the_user_hears_of_an_interval_that_is_off_by_a_quarter_only() -> None:
    assert not cadence.is_news(PLACED, here(0.15), COST)
    assert cadence.is_news(PLACED, here(0.16), COST)
    assert cadence.is_news(PLACED, here(0.06), COST)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (
            here(0.24),
            "Checkpoints every 9 min instead of 14 min: "
            "evictions here rose from 0.1 to 0.24 per hour.",
        ),
        (
            here(0.04),
            "Checkpoints every 22 min instead of 14 min: "
            "evictions here fell from 0.1 to 0.04 per hour.",
        ),
        (
            here(0.0),
            "Checkpoints every 1.0 h instead of 14 min: on demand nothing is evicted.",
        ),
        (
            here(0.11, replace(KNOWN, answered=0.7)),
            "Checkpoints every 5 min instead of 14 min: "
            "70 % of its evictions leave the time for a save, not 95 %.",
        ),
    ],
)
def test_the_sentence_names_what_has_moved_it_most(now: Cadence, words: str) -> None:
    assert cadence.words(PLACED, now, now, None) == words


def test_the_sentence_names_the_price_where_that_was_it() -> None:
    dear = SaveCost(stall=0.0, upload=1.0, blocks=2_500)
    price = here(0.1, hourly=40.0)

    told = cadence.words(PLACED, price, price, dear)

    assert "every 16 min instead of 31 min" in told
    assert "its machines cost $80.00 per hour instead of $20.00." in told


def test_back_on_spot_the_sentence_says_how_often_machines_go_there() -> None:
    calm = replace(PLACED, said=here(0.0))

    told = cadence.words(calm, here(0.1), here(0.35), None)

    assert told == (
        "Checkpoints every 14 min instead of 1.0 h, for some minutes more often: "
        "Spot machines are evicted, here about 0.1 times per hour."
    )


@pytest.mark.parametrize(
    "saving",
    [
        None,
        Saving(every=float("inf")),
        Saving(every=float("nan"), cost=COST),
    ],
)
def test_what_json_cannot_hold_is_kept_out_of_a_jobs_progress(saving: Saving | None) -> None:
    assert cadence.saves(saving) == {}


def test_what_a_save_costs_stays_known_until_another_was_measured() -> None:
    nonsense = SaveCost(stall=float("nan"), upload=1.0, blocks=1)

    assert cadence.saves(Saving(every=9.0)) == {"save_every": 9.0}
    assert cadence.saves(Saving(every=9.0, cost=nonsense)) == {"save_every": 9.0}
    assert cadence.saves(Saving(every=9.0, cost=COST))["save_cost"] == COST.to_plain()


def test_who_is_told_nothing_and_says_nothing_reads_as_before() -> None:
    answer = HeartbeatAnswer(now=1.0, stop_by=2.0, directive_seq=0)
    beat = Heartbeat(epoch=1, seq=1, phase=NodePhase.RUNNING, generation=1, step=1, free_port=0)

    assert "cadence" not in answer.to_plain()
    assert "saving" not in beat.to_plain()
