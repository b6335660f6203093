"""What Azure tells of Spot, and what a plan makes of it."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.domain.planning.plan import Plan, make_plan
from service.domain.spot.eviction_hazard import prior_rates
from service.domain.spot.market import EvictionBand, ReportedBand, eviction_prior
from service.domain.states import CapacityType
from service.pricing.azure.arm import retry_after
from tests.unit.planning.test_plan import REQUEST, offer

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
SEEN = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_last_band_that_was_told_is_the_prior_whatever_its_age_or_else_the_setting() -> None:
    known = eviction_prior(ReportedBand(band=EvictionBand.TO_10, seen_at=SEEN), 0.05)

    assert known.per_hour == 0.075
    assert known.source == "Azure's eviction rate of 2026-11-20, 5 to 10 % of machines an hour"

    setting = eviction_prior(None, 0.05)
    assert setting.per_hour == 0.05
    assert setting.source == "REKINDLE_HAZARD_PER_HOUR, 0.05: Azure has told no eviction rate"


def test_a_higher_band_means_more_evictions_at_every_age() -> None:
    rates = [prior_rates(band.per_hour) for band in EvictionBand]

    for lower, higher in itertools.pairwise(rates):
        assert all(a < b for a, b in zip(lower, higher, strict=True))


def test_an_option_keeps_what_its_evictions_rest_on_and_one_on_demand_has_none() -> None:
    told = eviction_prior(ReportedBand(band=EvictionBand.ABOVE, seen_at=SEEN), 0.05)
    spot = replace(offer(evictions_per_hour=told.per_hour), evictions_from=told.source)
    on_demand = replace(spot, offering=replace(spot.offering, capacity_type=ON_DEMAND))
    plan = make_plan(replace(REQUEST, offers=(spot, on_demand)))

    kept = Plan.from_dict(json.loads(json.dumps(plan.as_dict())))

    found = {o.offering.capacity_type: o for o in kept.options}
    assert found[SPOT].evictions_from.endswith("20+ % of machines an hour")
    assert found[SPOT].node_evictions_per_hour == 0.25
    assert (found[ON_DEMAND].evictions_from, found[ON_DEMAND].node_evictions_per_hour) == ("", 0)


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
