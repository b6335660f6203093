"""What Azure tells of Spot: placement scores and eviction rates, and what a plan makes of it."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from service.domain.placement.offering_choice import OfferingExperience, OfferingState
from service.domain.placement.placement_scores import ScoreRecord, order_by_score
from service.domain.planning.plan import Plan, make_plan
from service.domain.spot.age_hazard import Exposure
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.spot.eviction_hazard import prior_rates
from service.domain.spot.market import EvictionBand, PlacementScore, ReportedBand, eviction_prior
from service.domain.states import CapacityType
from service.pricing.azure.arm import retry_after
from tests.unit.performance.test_simulation import option
from tests.unit.planning.test_plan import REQUEST, offer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HELD = OfferingExperience(holds=Exposure((1.0, 0.0, 0.0, 0.0), (0, 0, 0, 0)))


def offering_in(region: str, hourly: str = "8") -> OfferingState:
    chosen = option(region, 1.0)
    return OfferingState(option=chosen, price=replace(chosen.price, hourly=Decimal(hourly)))


def scored(score: PlacementScore, *, minutes_ago: float = 1, machines: int = 2) -> ScoreRecord:
    seen_at = NOW - timedelta(minutes=minutes_ago)
    return ScoreRecord(
        score=score, machines=machines, since=seen_at - timedelta(hours=1), seen_at=seen_at
    )


def order(
    offerings: list[OfferingState], score_records: Mapping[str, ScoreRecord], machines: int = 2
) -> list[str]:
    scores = {
        spot_pool_of(p.offering): score_records[r]
        for p in offerings
        if (r := p.offering.region) in score_records
    }
    return [p.offering.region for p in order_by_score(offerings, scores, machines, NOW)]


def test_of_one_price_the_better_scored_comes_first_and_what_is_not_scored_before_low() -> None:
    offerings = [
        offering_in("low"),
        offering_in("silent"),
        offering_in("medium", "8.05"),
        offering_in("high"),
    ]
    scores = {score.value.lower(): scored(score) for score in PlacementScore}

    assert order(offerings, scores) == ["high", "medium", "silent", "low"]


def test_a_cheaper_offering_stays_before_a_better_scored_one() -> None:
    scores = {"cheap": scored(PlacementScore.LOW), "dear": scored(PlacementScore.HIGH)}

    assert order([offering_in("cheap"), offering_in("dear", "8.10")], scores) == ["cheap", "dear"]


def test_where_we_have_held_machines_a_score_changes_nothing() -> None:
    experienced = replace(offering_in("known"), experience=HELD)
    scores = {"known": scored(PlacementScore.LOW), "new": scored(PlacementScore.HIGH)}

    assert order([experienced, offering_in("new")], scores) == ["known", "new"]
    assert order([offering_in("new"), experienced], scores) == ["new", "known"]


def test_on_demand_is_not_ordered_by_the_scores_of_spot() -> None:
    spot = offering_in("a")
    paid = replace(spot.option.offering, capacity_type=CapacityType.ON_DEMAND, region="b")
    on_demand = replace(spot, option=replace(spot.option, offering=paid))

    scores = {"a": scored(PlacementScore.LOW), "b": scored(PlacementScore.HIGH)}
    assert order([spot, on_demand], scores) == ["a", "b"]


@pytest.mark.parametrize(
    ("score", "machines", "likely"),
    [
        (scored(PlacementScore.HIGH), 2, 3660.0),
        (scored(PlacementScore.HIGH), 3, None),  # fewer were asked about
        (scored(PlacementScore.HIGH, minutes_ago=46), 2, None),
        (scored(PlacementScore.MEDIUM), 2, None),
    ],
)
def test_a_score_tells_of_so_many_machines_and_for_a_while(
    score: ScoreRecord, machines: int, likely: float | None
) -> None:
    assert score.likely_seconds(NOW, machines) == likely


def test_where_few_are_not_to_be_had_more_are_not_either() -> None:
    assert scored(PlacementScore.LOW, machines=1).is_valid_for(NOW, 8)
    assert not scored(PlacementScore.LOW, machines=8).is_valid_for(NOW, 1)


SPOT_TYPE, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
SEEN = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_last_band_that_was_told_is_the_prior_whatever_its_age_or_else_the_setting() -> None:
    prior = eviction_prior(ReportedBand(band=EvictionBand.TO_10, seen_at=SEEN), 0.05)

    assert prior.per_hour == 0.075
    assert prior.source == "Azure's eviction rate of 2026-11-20, 5 to 10 % of machines an hour"

    setting = eviction_prior(None, 0.05)
    assert setting.per_hour == 0.05
    assert setting.source == "REKINDLE_HAZARD_PER_HOUR, 0.05: Azure has reported no eviction rate"


def test_a_higher_band_means_more_evictions_at_every_age() -> None:
    rates = [prior_rates(band.per_hour) for band in EvictionBand]

    for lower, higher in itertools.pairwise(rates):
        assert all(a < b for a, b in zip(lower, higher, strict=True))


def test_an_option_keeps_what_its_evictions_rest_on_and_one_on_demand_has_none() -> None:
    prior = eviction_prior(ReportedBand(band=EvictionBand.ABOVE, seen_at=SEEN), 0.05)
    spot = replace(offer(evictions_per_hour=prior.per_hour), evictions_from=prior.source)
    on_demand = replace(spot, offering=replace(spot.offering, capacity_type=ON_DEMAND))
    plan = make_plan(replace(REQUEST, offers=(spot, on_demand)))

    stored = Plan.from_dict(json.loads(json.dumps(plan.as_dict())))

    by_capacity = {o.offering.capacity_type: o for o in stored.options}
    assert by_capacity[SPOT_TYPE].evictions_from.endswith("20+ % of machines an hour")
    assert by_capacity[SPOT_TYPE].node_evictions_per_hour == 0.25
    assert (
        by_capacity[ON_DEMAND].evictions_from,
        by_capacity[ON_DEMAND].node_evictions_per_hour,
    ) == ("", 0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "7", "x-ms-ratelimit-microsoft.costmanagement-qpu-retry-after": "9"}, 9.0),
        ({"x-ms-user-quota-resets-after": "00:01:05"}, 65.0),
        ({"x-ms-user-quota-resets-after": "soon"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
        ({}, 0.0),
    ],
)
def test_each_service_of_azure_tells_how_long_to_wait_in_its_own_way(
    headers: dict[str, str], seconds: float
) -> None:
    assert retry_after(headers) == seconds
