"""Placement scores decide between offerings that cost the same and are new to us, nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from service.domain.placement.offering_choice import Lived, Place
from service.domain.placement.placement_scores import Scored, by_score
from service.domain.spot.age_hazard import Ages
from service.domain.spot.capacity_traces import place_of
from service.domain.spot.market import Score
from service.domain.states import CapacityType
from tests.unit.test_trial import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HELD = Lived(holds=Ages((1.0, 0.0, 0.0, 0.0), (0, 0, 0, 0)))


def place(region: str, hourly: str = "8") -> Place:
    chosen = option(region, 1.0)
    return Place(option=chosen, price=replace(chosen.price, hourly=Decimal(hourly)))


def scored(score: Score, *, minutes_ago: float = 1, machines: int = 2) -> Scored:
    seen = NOW - timedelta(minutes=minutes_ago)
    return Scored(score=score, machines=machines, since=seen - timedelta(hours=1), seen_at=seen)


def order(places: list[Place], told: Mapping[str, Scored], machines: int = 2) -> list[str]:
    scores = {place_of(p.offering): told[r] for p in places if (r := p.offering.region) in told}
    return [p.offering.region for p in by_score(places, scores, machines, NOW)]


def test_of_one_price_the_better_scored_comes_first_and_what_is_not_scored_before_low() -> None:
    places = [place("low"), place("silent"), place("medium", "8.05"), place("high")]
    told = {score.value.lower(): scored(score) for score in Score}

    assert order(places, told) == ["high", "medium", "silent", "low"]


def test_a_cheaper_offering_stays_before_a_better_scored_one() -> None:
    told = {"cheap": scored(Score.LOW), "dear": scored(Score.HIGH)}

    assert order([place("cheap"), place("dear", "8.10")], told) == ["cheap", "dear"]


def test_where_we_have_held_machines_a_score_changes_nothing() -> None:
    known = replace(place("known"), lived=HELD)
    told = {"known": scored(Score.LOW), "new": scored(Score.HIGH)}

    assert order([known, place("new")], told) == ["known", "new"]
    assert order([place("new"), known], told) == ["new", "known"]


def test_on_demand_is_not_ordered_by_the_scores_of_spot() -> None:
    spot = place("a")
    paid = replace(spot.option.offering, capacity_type=CapacityType.ON_DEMAND, region="b")
    on_demand = replace(spot, option=replace(spot.option, offering=paid))

    told = {"a": scored(Score.LOW), "b": scored(Score.HIGH)}
    assert order([spot, on_demand], told) == ["a", "b"]


@pytest.mark.parametrize(
    ("told", "machines", "likely"),
    [
        (scored(Score.HIGH), 2, 3660.0),
        (scored(Score.HIGH), 3, None),  # fewer were asked about
        (scored(Score.HIGH, minutes_ago=46), 2, None),
        (scored(Score.MEDIUM), 2, None),
    ],
)
def test_a_score_tells_of_so_many_machines_and_for_a_while(
    told: Scored, machines: int, likely: float | None
) -> None:
    assert told.likely_s(NOW, machines) == likely


def test_where_few_are_not_to_be_had_more_are_not_either() -> None:
    assert scored(Score.LOW, machines=1).holds(NOW, 8)
    assert not scored(Score.LOW, machines=8).holds(NOW, 1)
