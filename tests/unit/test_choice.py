"""What a choice of where to run next is told of evictions."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.domain import policy
from service.domain.answers import NO_PAST, Past
from service.domain.choice import Place, Work, situation
from service.domain.states import CapacityType
from service.domain.terms import Terms
from tests.unit.test_trial import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CHOSEN = option("eastus", 1.0)


def rate(past: Past) -> float | None:
    """Evictions per hour that the policy takes for the band's, of two machines."""
    work = Work(steps=3600, seconds_per_step=10.0, terms=Terms())
    place = Place(option=CHOSEN, price=CHOSEN.price)
    return situation([place], work, NOW, 2, past=past).candidates[0].evictions_per_hour


def test_the_newest_band_counts_and_where_there_is_none_that_of_the_plan() -> None:
    planned = CHOSEN.expected_evictions / CHOSEN.duration_p50 * policy.HOUR

    assert rate(Past(bands={CHOSEN.offering: 0.25})) == 0.5
    assert rate(NO_PAST) == pytest.approx(planned)


def test_an_eviction_undoes_half_of_the_interval_in_force() -> None:
    bought = option("westus", 2.0)
    away = replace(bought.offering, capacity_type=CapacityType.ON_DEMAND)
    paid = replace(bought, offering=away, checkpoint_seconds=3600.0)
    told = Work(steps=360, seconds_per_step=10.0, terms=Terms(), checkpoint_s=500.0)
    planned = replace(told, checkpoint_s=None)
    places = [Place(option=o, price=o.price) for o in (paid, CHOSEN)]

    assert situation(places, told, NOW, 2).lost_s == 250.0
    assert situation(places, planned, NOW, 2).lost_s == CHOSEN.checkpoint_seconds / 2
