"""How long a job that Spot refuses is likely to wait on, and what that does to its forecast."""

import math
import random
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.ages import BUCKETS, DROUGHT_PRIOR, Ages, expected_rest, quantile
from service.domain.answers import NO_PAST, Past
from service.domain.droughts import rates, wait
from service.domain.forecast import ToCome
from service.domain.shortage import Shortage
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WORK = ToCome(p10=9000.0, p50=10_000.0, p90=12_000.0)


def refused(hours: float, in_a_row: int = 3) -> Shortage:
    """Since so many hours."""
    since = NOW - timedelta(hours=hours)
    return Shortage(offering=SPOT, since=since, ends_at=NOW, in_a_row=in_a_row, reason="")


def waits(hours: float, past: Past = NO_PAST) -> ToCome:
    found = wait([refused(hours)], past, NOW)
    assert found is not None
    return found


def test_what_has_lasted_is_likely_to_last() -> None:
    young, old = waits(0.1), waits(5.0)

    assert old.p50 > 2 * young.p50
    assert young.p10 < young.p50 < young.p90


def test_a_drought_whose_beginning_was_not_seen_is_an_old_one() -> None:
    assert waits(0.1, Past(drought_seen=False)) == pytest.approx(waits(4.1))


def test_own_experience_moves_the_wait() -> None:
    short = Past(droughts=Ages.of([(0.2, True)] * 30))
    long = Past(droughts=Ages.of([(20.0, True)] * 30))

    assert waits(0.1, short).p50 < waits(0.1).p50 / 2 < waits(0.1, long).p50 / 4


def test_want_of_quota_is_no_drought() -> None:
    assert wait([refused(1.0), refused(1.0, in_a_row=0)], NO_PAST, NOW) is None


def test_more_offerings_end_a_drought_sooner() -> None:
    both = wait([refused(1.0), refused(1.0)], NO_PAST, NOW)

    assert both is not None
    assert both.p50 < waits(1.0).p50


def test_half_of_all_droughts_end_within_the_median_of_their_age() -> None:
    of, draw = rates(Ages(), 1), random.Random(1)
    lasted = [quantile(of, 0.0, draw.random()) for _ in range(4000)]
    older = [hours - 1.0 for hours in lasted if hours > 1.0]

    middle = quantile(of, 1.0, 0.5)
    assert sum(rest < middle for rest in older) / len(older) == pytest.approx(0.5, abs=0.03)
    assert sum(min(rest, 12.0) for rest in older) / len(older) == pytest.approx(
        expected_rest(of, 1.0, 12.0), rel=0.05
    )
    assert quantile((math.log(2),) * BUCKETS, 3.0, 0.5) == pytest.approx(1.0)
    assert of == DROUGHT_PRIOR


def test_eight_of_ten_jobs_that_wait_are_done_within_the_interval() -> None:
    """Over 2,000 waits of which the rates are known, and work that is log-normal."""
    of, draw = rates(Ages(), 1), random.Random(2)
    within = 0
    for _ in range(2000):
        age = draw.uniform(0.05, 6.0)
        took = quantile(of, age, draw.random()) * 3600
        took += 10_000 * math.exp(draw.gauss(0, 0.12))
        told = ToCome(p10=8575.0, p50=10_000.0, p90=11_660.0).after(waits(age))
        within += told.p10 <= took <= told.p90

    assert 0.75 <= within / 2000 <= 0.85


def test_a_wait_makes_the_end_later_and_less_sure() -> None:
    told = WORK.after(waits(1.0))

    assert told.p50 == WORK.p50 + waits(1.0).p50
    assert told.p90 - told.p50 > WORK.p90 - WORK.p50
    assert told.p10 >= waits(1.0).p10
    assert WORK.after(waits(1.0).at_most(-5.0)) == WORK
