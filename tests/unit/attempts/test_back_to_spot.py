"""On demand is left for Spot only where on demand can be had again, should Spot refuse."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Price
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.placement.offering_choice import OfferingState, RemainingWork, back_to_spot
from service.domain.placement.policy_state import CurrentHold, Decision
from service.domain.spot.capacity_backoff import record_refusal
from service.domain.states import CapacityType
from tests.unit.performance.test_simulation import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TERMS = JobConstraints(deadline=NOW + timedelta(hours=90))
CHOSEN = option("eastus", 1.0)
SPOT = OfferingState(
    option=CHOSEN, price=CHOSEN.price, has_signals=True, likely_since=NOW - timedelta(hours=1)
)


def on_demand(region: str = "eastus") -> OfferingState:
    where = replace(CHOSEN.offering, region=region, capacity_type=CapacityType.ON_DEMAND)
    price = Price(hourly=Decimal(4), on_demand_hourly=Decimal(4))
    return OfferingState(option=replace(CHOSEN, offering=where, price=price), price=price)


def sold_out(place: OfferingState) -> OfferingState:
    return replace(place, shortage=record_refusal(None, place.offering, 1, "no room", NOW, NOW))


def decided(*paid: OfferingState, terms: JobConstraints = TERMS) -> Decision | None:
    """Ten hours of work are left; the first of ``paid`` is held."""
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=terms)
    held = CurrentHold(key=(paid[0].offering, 2), age_s=3600.0)
    return back_to_spot([SPOT, *paid], work, held, NOW, 2)


def test_what_can_be_had_again_is_left_and_the_deadline_rests_on_it() -> None:
    decision = decided(on_demand())

    assert decision is not None
    assert decision.net is not None
    assert decision.net.offering == on_demand().offering


@pytest.mark.parametrize(
    ("held", "terms"),
    [
        (sold_out(on_demand()), TERMS),
        (on_demand(), replace(TERMS, max_price=Decimal(2))),
        (on_demand("uksouth"), replace(TERMS, regions=("eastus",))),
    ],
    ids=["sold out", "too dear by now", "in a region that is not allowed any more"],
)
def test_what_cannot_be_had_again_is_kept(held: OfferingState, terms: JobConstraints) -> None:
    assert decided(held, terms=terms) is None


def test_where_another_one_can_be_had_the_deadline_rests_on_that() -> None:
    decision = decided(sold_out(on_demand()), on_demand("uksouth"))

    assert decision is not None
    assert decision.net is not None
    assert decision.net.offering == on_demand("uksouth").offering
