"""What a running job is told to save by: evictions where it is, answered notices, the price."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain import cadence
from service.domain.cadence import Basis, Known, Lived, basis
from service.domain.hazard import BURST_S
from service.domain.traces import Place
from trainer.contract import Cadence, Heartbeat, HeartbeatAnswer, NodePhase, SaveCost, Saving

PLANNED = Cadence(evictions_per_hour=0.1, answered=0.95, seconds_per_block=0.001)
WEST, EAST = Place("westus", "ND96"), Place("eastus", "ND96")
KNOWN = Known(
    told=PLANNED,
    since=0.0,
    said=basis(PLANNED, 2, WEST),
    planned=PLANNED,
    planned_seconds=840.0,
    answered=0.95,
)
COST = SaveCost(stall=0.5, upload=4.0, blocks=100)
RATES = st.floats(0.001, 20.0)


def here(per_hour: float, known: Known = KNOWN, hourly: float = 10.0) -> Cadence:
    """Two machines that are evicted so often together."""
    return cadence.usual(known, machines=2, evictions_per_hour=per_hour / 2, hourly=hourly)


def now(per_hour: float, known: Known = KNOWN, hourly: float = 10.0) -> Basis:
    """The same as the user hears of it."""
    return basis(here(per_hour, known, hourly), 2, WEST)


PLACED = replace(KNOWN, said=now(0.1), told=here(0.1))


def test_own_machine_hours_move_the_band_that_counts_for_two_evictions() -> None:
    quiet = Lived(machine_hours=80.0)
    stormy = Lived(machine_hours=80.0, evictions=10)

    assert cadence.evictions_per_hour(0.05, Lived()) == pytest.approx(0.05)
    assert cadence.evictions_per_hour(0.05, quiet) == pytest.approx(2 / 120)
    assert cadence.evictions_per_hour(0.05, stormy) == pytest.approx(12 / 120)


def test_an_eviction_next_door_raises_them_for_minutes_and_no_longer() -> None:
    soon, later = (cadence.raised(PLANNED, s) for s in (BURST_S - 1, BURST_S))

    assert soon.evictions_per_hour == pytest.approx(3.5 * PLANNED.evictions_per_hour)
    assert later == cadence.raised(PLANNED, None) == PLANNED


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
    known = replace(KNOWN, told=here(one), said=now(two), since=1.5, survived=3)

    assert Known.from_json(known.to_json()) == known


def test_the_user_hears_of_an_interval_that_is_off_by_a_quarter_only() -> None:
    assert not cadence.is_news(PLACED, now(0.15), COST)
    assert cadence.is_news(PLACED, now(0.16), COST)
    assert cadence.is_news(PLACED, now(0.06), COST)


@pytest.mark.parametrize(
    ("are", "words"),
    [
        (
            now(0.24),
            "Checkpoints every 9 min instead of 14 min: "
            "evictions of a machine here rose from 0.05 to 0.12 per hour.",
        ),
        (
            now(0.04),
            "Checkpoints every 22 min instead of 14 min: "
            "evictions of a machine here fell from 0.05 to 0.02 per hour.",
        ),
        (
            now(0.0),
            "Checkpoints every 1.0 h instead of 14 min: on demand nothing is evicted.",
        ),
        (
            now(0.11, replace(KNOWN, answered=0.7)),
            "Checkpoints every 5 min instead of 14 min: "
            "70 % of its evictions leave the time for a save, not 95 %.",
        ),
        (
            replace(now(0.24), place="ND96 in eastus"),
            "Checkpoints every 9 min instead of 14 min: "
            "a machine of ND96 in eastus is evicted 0.12 times per hour, "
            "one of ND96 in westus 0.05.",
        ),
        (
            basis(cadence.usual(KNOWN, machines=1, evictions_per_hour=0.05, hourly=10.0), 1, EAST),
            "Checkpoints every 20 min instead of 14 min: it has 1 machine instead of 2.",
        ),
    ],
)
def test_the_sentence_names_what_has_moved_it_most(are: Basis, words: str) -> None:
    assert cadence.words(PLACED, are, None) == words


def test_the_sentence_names_the_price_where_that_was_it() -> None:
    dear = SaveCost(stall=0.0, upload=1.0, blocks=2_500)

    told = cadence.words(PLACED, now(0.1, hourly=40.0), dear)

    assert "every 16 min instead of 31 min" in told
    assert "a machine costs $40.00 per hour instead of $10.00." in told


def test_the_sentence_does_not_blame_what_moved_much_and_changed_little() -> None:
    cheap = SaveCost(stall=5.0, upload=1.0, blocks=1)  # what blocks cost is lost in the stall
    price_fell_fourfold, rose = now(0.2, hourly=2.5), "evictions of a machine here rose"
    other_way = now(0.05, replace(KNOWN, answered=0.85), hourly=10.0)  # half as often, 3x as lost

    assert rose in cadence.words(PLACED, price_fell_fourfold, cheap)
    assert "85 % of its evictions" in cadence.words(PLACED, other_way, cheap)


def test_the_sentence_does_not_blame_what_moved_most_the_other_way() -> None:
    dear = SaveCost(stall=0.0, upload=1.0, blocks=2_500)
    twice_as_often = now(0.2, replace(KNOWN, answered=0.9664), hourly=6.1)

    assert "every 35 min instead of 31 min" in cadence.words(PLACED, twice_as_often, dear)
    assert "a machine costs $6.10" in cadence.words(PLACED, twice_as_often, dear)


def test_back_on_spot_the_sentence_says_how_often_machines_go_there() -> None:
    calm = replace(PLACED, said=now(0.0))

    told = cadence.words(calm, now(0.1), None, more_often=True)

    assert told == (
        "Checkpoints every 14 min instead of 1.0 h, for some minutes more often: "
        "Spot machines are evicted, here 0.05 times per hour each."
    )


@pytest.mark.parametrize(
    "saving",
    [
        None,
        Saving(every=float("inf")),
        Saving(every=float("nan"), cost=COST),
        Saving(every=-1.0, cost=COST),
    ],
)
def test_what_cannot_be_is_kept_out_of_a_jobs_progress(saving: Saving | None) -> None:
    assert cadence.saves(saving, 1) == {}


@pytest.mark.parametrize(
    "nonsense",
    [
        replace(COST, stall=float("nan")),
        replace(COST, stall=-1.0),
        replace(COST, upload=-1.0),
        replace(COST, blocks=-1),
        replace(COST, blocks=10**400),
    ],
)
def test_what_a_save_costs_stays_known_until_another_was_measured(nonsense: SaveCost) -> None:
    said = {"save_every": 9.0, "save_generation": 4}

    assert cadence.saves(Saving(every=9.0), 4) == said
    assert cadence.saves(Saving(every=9.0, cost=nonsense), 4) == said
    assert cadence.saves(Saving(every=9.0, cost=COST), 4) == said | {"save_cost": COST.to_plain()}


def test_who_is_told_nothing_and_says_nothing_reads_as_before() -> None:
    answer = HeartbeatAnswer(now=1.0, stop_by=2.0, directive_seq=0)
    beat = Heartbeat(epoch=1, seq=1, phase=NodePhase.RUNNING, generation=1, step=1, free_port=0)

    assert "cadence" not in answer.to_plain()
    assert "saving" not in beat.to_plain()


def test_what_is_kept_on_demand_says_nothing_of_spot() -> None:
    assert cadence.on_spot({"save_every": 500.0}) == 500.0
    assert cadence.on_spot({"save_every": 3600.0}) is None
    assert cadence.on_spot({}) is None


def test_on_an_engine_without_notices_no_eviction_counts_as_answered() -> None:
    told = cadence.usual(KNOWN, machines=2, evictions_per_hour=0.05, hourly=10.0, noticed=False)

    assert told == replace(here(0.1), answered=0.0)
    assert KNOWN.seconds(told, COST) < KNOWN.seconds(here(0.1), COST)
