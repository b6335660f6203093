"""How long a job that Spot refuses is likely to wait on, and what that does to its forecast."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory, RequestOutcome
from service.domain.placement.capacity_outages import (
    expected_aftermath,
    expected_wait,
    failover_probability,
    is_every_offering_in_backoff,
)
from service.domain.planning import forecast
from service.domain.planning.forecast import (
    NO_PROGRESS,
    ForecastInputs,
    ObservedProgress,
    RemainingTime,
)
from service.domain.spot.age_hazard import OUTAGE_PRIOR, Exposure, residual_life_quantile
from service.domain.spot.capacity_backoff import Shortage
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def refused(hours: float, ends: float = 0.0) -> Shortage:
    """Since so many hours, and left alone until so many minutes from now."""
    since, until = NOW - timedelta(hours=hours), NOW + timedelta(minutes=ends)
    return Shortage(offering=SPOT, since=since, ends_at=until, in_a_row=3, nodes=2, reason="")


def waits(hours: float, past: CapacityHistory = NO_HISTORY) -> RemainingTime:
    wait = expected_wait([refused(hours)], replace(past, refused_at=NOW), NOW)
    assert wait is not None
    return wait


@pytest.mark.parametrize(
    ("spots", "hops", "probability"),
    [(1, (0, 0), 0.0), (2, (0, 0), 0.4), (4, (0, 0), 0.784), (1, (6, 2), 0.2), (4, (6, 2), 0.5136)],
)
def test_another_offering_takes_over_the_likelier_the_more_there_are(
    spots: int, hops: tuple[int, int], probability: float
) -> None:
    assert failover_probability(hops, spots) == pytest.approx(probability)


def test_half_of_all_old_outages_end_after_the_half_life_of_their_rate() -> None:
    assert residual_life_quantile((0.5, 0.5, 0.1, 0.1), 30.0, 0.5) == pytest.approx(
        math.log(2) / 0.1
    )


def test_an_outage_lasts_by_its_age_and_by_what_was_seen_here() -> None:
    young, aged = waits(0.1), waits(5.0)

    assert aged.p50 > 2 * young.p50
    assert young.p10 < young.p50 < young.p90

    assert waits(0.1, CapacityHistory(is_outage_start_observed=False)) == pytest.approx(waits(4.1))

    short = CapacityHistory(outages=Exposure.of([(0.2, True)] * 30))
    long = CapacityHistory(outages=Exposure.of([(20.0, True)] * 30))

    assert waits(0.1, short).p50 < waits(0.1).p50 / 2 < waits(0.1, long).p50 / 4


def test_a_refusal_of_days_ago_or_of_more_machines_is_no_wait_of_today() -> None:
    now_refused, stale = refused(72.0, ends=9), refused(72.0, ends=-60)

    assert is_every_offering_in_backoff([now_refused, now_refused], 2, NOW)
    # The backoff ended half a minute ago, so the next request is due.
    assert is_every_offering_in_backoff([refused(72.0, ends=-0.5)], 2, NOW)
    assert not is_every_offering_in_backoff([now_refused, stale], 2, NOW)

    assert not is_every_offering_in_backoff([refused(1.0, ends=9)], 1, NOW)


def test_without_requests_nothing_is_known_of_an_outage_which_more_offerings_end_sooner() -> None:
    def wait_if_refused(minutes: float) -> RemainingTime | None:
        at = NOW - timedelta(minutes=minutes)
        outcome = RequestOutcome(offering=SPOT, job_id="", nodes=1, at=at, granted=False)
        return expected_wait(
            [refused(72.0, ends=5)], CapacityHistory.of([outcome], [SPOT], 1, NOW), NOW
        )

    assert wait_if_refused(21) is not None
    assert wait_if_refused(23) is None
    assert expected_wait([refused(72.0, ends=5)], NO_HISTORY, NOW) is None

    wait = expected_wait([refused(1.0), refused(1.0)], CapacityHistory(refused_at=NOW), NOW)
    assert wait is not None
    assert wait.p50 < waits(1.0).p50


def test_eight_of_ten_jobs_that_wait_are_done_within_the_interval() -> None:
    """Over 2,000 waits, each at rates of its own as the prior has them, and log-normal work."""
    draw, within, lived = random.Random(2), 0, 0
    while lived < 2000:
        of = tuple(draw.gammavariate(3.0, rate / 3.0) for rate in OUTAGE_PRIOR)
        age, duration = draw.uniform(0.05, 6.0), residual_life_quantile(of, 0.0, draw.random())
        if duration <= age:
            continue
        lived += 1
        elapsed = (duration - age) * 3600 + 10_000 * math.exp(draw.gauss(0, 0.12))
        history = CapacityHistory(outages=Exposure.of([(age, False)]))
        remaining = RemainingTime(p10=8575.0, p50=10_000.0, p90=11_660.0).after(waits(age, history))
        within += remaining.p10 <= elapsed <= remaining.p90

    assert within / 2000 == pytest.approx(0.78, abs=0.03)


COURSE = ForecastInputs(
    seconds_per_step=20.0,
    recovery_seconds=600.0,
    checkpoint_seconds=300.0,
    evictions_per_second=0.2 / 3600,
    answered=0.0,
    seconds_per_step_p10=15.0,
    seconds_per_step_p90=25.0,
    verify_seconds=0.0,
)
STEPS = 4000
CALM = RemainingTime(p10=72_000.0, p50=80_000.0, p90=88_000.0)


def ends(
    past: CapacityHistory = NO_HISTORY,
    spots: int = 1,
    progress: ObservedProgress = NO_PROGRESS,
    course: ForecastInputs = COURSE,
) -> RemainingTime:
    after = expected_aftermath(past, spots)
    return forecast.forecast_remaining(
        course, steps=STEPS, seconds_per_step=20.0, running=True, progress=progress, after=after
    )


def test_evictions_to_come_are_followed_by_waits_where_spot_is_seldom_there_again() -> None:
    at_once = CapacityHistory(regrants=(40, 40))
    never, spots = CapacityHistory(regrants=(40, 0)), 2

    assert CALM.p50 < ends(at_once).p50 < ends().p50 < ends(never).p50 + 60
    assert ends(never).p90 - ends(never).p50 > 2 * (ends(at_once).p90 - ends(at_once).p50)
    assert ends(spots=spots).p50 < ends().p50
    assert ends(progress=ObservedProgress(evictions=20, trained_s=3600.0)).p50 > ends().p50
    assert ends(never, course=COURSE.as_it_runs(None, on_demand=True)) == CALM


def test_a_job_that_may_buy_on_demand_waits_no_longer_than_its_deadline_allows() -> None:
    remaining = ends().no_later(1000.0, than=CALM)

    assert remaining == RemainingTime(p10=min(ends().p10, 73_000.0), p50=81_000.0, p90=89_000.0)
    assert ends().no_later(-5.0, than=CALM) == CALM


@pytest.mark.parametrize("per_hour", [0.03, 0.2])
@pytest.mark.parametrize("many", [0, 20])
def test_eight_of_ten_jobs_end_within_the_interval_with_all_their_waits(
    per_hour: float, many: int
) -> None:
    """1,000 lives at rates that differ as the priors have it, ``many`` droughts seen before."""
    draw, within = random.Random(3), 0
    course = replace(COURSE, evictions_per_second=per_hour / 3600)
    for _ in range(1000):
        of = tuple(draw.gammavariate(3.0, rate / 3.0) for rate in OUTAGE_PRIOR)
        outages = Exposure.of(
            [(residual_life_quantile(of, 0.0, draw.random()), True) for _ in range(many)]
        )
        steps = draw.randint(500, 8000)
        work = steps * draw.gauss(20.0, 1.56)
        rate = per_hour * draw.gammavariate(2, 0.5)
        waits = expected_aftermath(CapacityHistory(outages=outages), spots=1)
        remaining = forecast.forecast_remaining(
            course, steps=steps, seconds_per_step=20.0, running=True, after=waits
        )
        within += remaining.p10 <= _lived(work, rate, of, draw) <= remaining.p90

    assert 0.75 <= within / 1000 <= 0.85


def _lived(work: float, per_hour: float, of: tuple[float, ...], draw: random.Random) -> float:
    """Seconds until it is done, with a drought after each eviction."""
    elapsed = 0.0
    while (life := draw.expovariate(per_hour / 3600)) < work:
        work -= life - min(life, draw.uniform(0, COURSE.checkpoint_seconds))
        elapsed += (
            life + COURSE.recovery_seconds + residual_life_quantile(of, 0.0, draw.random()) * 3600
        )
    return elapsed + work
