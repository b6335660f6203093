"""Placement scores decide between offerings that cost the same and are new to us, nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from service.domain.placement.offering_choice import OfferingExperience, OfferingState
from service.domain.placement.placement_scores import ScoreRecord, order_by_score
from service.domain.spot.age_hazard import Exposure
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.spot.market import PlacementScore
from service.domain.states import CapacityType
from tests.unit.performance.test_simulation import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HELD = OfferingExperience(holds=Exposure((1.0, 0.0, 0.0, 0.0), (0, 0, 0, 0)))


def place(region: str, hourly: str = "8") -> OfferingState:
    chosen = option(region, 1.0)
    return OfferingState(option=chosen, price=replace(chosen.price, hourly=Decimal(hourly)))


def scored(score: PlacementScore, *, minutes_ago: float = 1, machines: int = 2) -> ScoreRecord:
    seen = NOW - timedelta(minutes=minutes_ago)
    return ScoreRecord(
        score=score, machines=machines, since=seen - timedelta(hours=1), seen_at=seen
    )


def order(
    places: list[OfferingState], told: Mapping[str, ScoreRecord], machines: int = 2
) -> list[str]:
    scores = {spot_pool_of(p.offering): told[r] for p in places if (r := p.offering.region) in told}
    return [p.offering.region for p in order_by_score(places, scores, machines, NOW)]


def test_of_one_price_the_better_scored_comes_first_and_what_is_not_scored_before_low() -> None:
    places = [place("low"), place("silent"), place("medium", "8.05"), place("high")]
    told = {score.value.lower(): scored(score) for score in PlacementScore}

    assert order(places, told) == ["high", "medium", "silent", "low"]


def test_a_cheaper_offering_stays_before_a_better_scored_one() -> None:
    told = {"cheap": scored(PlacementScore.LOW), "dear": scored(PlacementScore.HIGH)}

    assert order([place("cheap"), place("dear", "8.10")], told) == ["cheap", "dear"]


def test_where_we_have_held_machines_a_score_changes_nothing() -> None:
    known = replace(place("known"), experience=HELD)
    told = {"known": scored(PlacementScore.LOW), "new": scored(PlacementScore.HIGH)}

    assert order([known, place("new")], told) == ["known", "new"]
    assert order([place("new"), known], told) == ["new", "known"]


def test_on_demand_is_not_ordered_by_the_scores_of_spot() -> None:
    spot = place("a")
    paid = replace(spot.option.offering, capacity_type=CapacityType.ON_DEMAND, region="b")
    on_demand = replace(spot, option=replace(spot.option, offering=paid))

    told = {"a": scored(PlacementScore.LOW), "b": scored(PlacementScore.HIGH)}
    assert order([spot, on_demand], told) == ["a", "b"]


@pytest.mark.parametrize(
    ("told", "machines", "likely"),
    [
        (scored(PlacementScore.HIGH), 2, 3660.0),
        (scored(PlacementScore.HIGH), 3, None),  # fewer were asked about
        (scored(PlacementScore.HIGH, minutes_ago=46), 2, None),
        (scored(PlacementScore.MEDIUM), 2, None),
    ],
)
def test_a_score_tells_of_so_many_machines_and_for_a_while(
    told: ScoreRecord, machines: int, likely: float | None
) -> None:
    assert told.likely_seconds(NOW, machines) == likely


def test_where_few_are_not_to_be_had_more_are_not_either() -> None:
    assert scored(PlacementScore.LOW, machines=1).is_valid_for(NOW, 8)
    assert not scored(PlacementScore.LOW, machines=8).is_valid_for(NOW, 1)
