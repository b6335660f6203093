"""How long a job takes from now on, and how sure that is."""

import random
from dataclasses import replace

import pytest

from service.domain.planning.forecast import (
    NO_WAIT,
    EvictionWait,
    ForecastInputs,
    ObservedProgress,
    RemainingTime,
    forecast_remaining,
)

CALM = ForecastInputs(
    seconds_per_step=10.0,
    recovery_seconds=600.0,
    checkpoint_seconds=300.0,
    evictions_per_second=0.0,
    answered=0.0,
    seconds_per_step_p10=7.5,
    seconds_per_step_p90=12.5,
    verify_seconds=0.0,
)
DRY = EvictionWait(share=0.4, p50=1800.0, p90=9000.0, outages=5.0)


def test_without_evictions_only_the_time_of_a_step_and_the_wait_for_machines_are_unsure() -> None:
    running = forecast_remaining(CALM, steps=100, seconds_per_step=20.0, running=True)

    assert (running.p10, running.p50, running.p90) == pytest.approx((1800, 2000, 2200))

    waiting = forecast_remaining(CALM, steps=100, seconds_per_step=None, running=False)
    assert (waiting.p10, waiting.p50, waiting.p90) == pytest.approx((1350, 1600, 1850))


def test_steps_that_are_all_alike_make_it_surer_and_wild_ones_longer() -> None:
    alike = ObservedProgress(steps=50, low=19.0, high=21.0)
    wild = ObservedProgress(steps=50, low=10.0, high=40.0)
    few = ObservedProgress(steps=5, low=10.0, high=40.0)

    unmeasured, sure, unsure, early = (
        forecast_remaining(CALM, steps=100, seconds_per_step=20.0, running=True, progress=progress)
        for progress in (ObservedProgress(), alike, wild, few)
    )

    assert sure.p90 - sure.p10 < unmeasured.p90 - unmeasured.p10 < unsure.p90 - unsure.p10
    assert sure.p50 == pytest.approx(unmeasured.p50, rel=0.01)
    assert unsure.p50 > unmeasured.p50
    assert early == unmeasured


@pytest.mark.parametrize(
    ("per_hour", "observed", "after", "expected"),
    [
        (0.3, ObservedProgress(), NO_WAIT, (31509.7, 35159.7, 39441.9)),
        (0.3, ObservedProgress(evictions=8, trained_s=86400.0), DRY, (32933.8, 37734.0, 52237.6)),
        (0.02, ObservedProgress(steps=60, low=8.0, high=14.0), DRY, (32269.5, 34395.9, 36639.8)),
    ],
)
def test_a_forecast_has_the_figures_of_the_table(
    per_hour: float,
    observed: ObservedProgress,
    after: EvictionWait,
    expected: tuple[float, float, float],
) -> None:
    """Not measured: they show a change of any formula; lives are compared below."""
    inputs = replace(CALM, evictions_per_second=per_hour / 3600, answered=0.4)

    remaining = forecast_remaining(
        inputs, steps=3000, seconds_per_step=11.0, running=False, progress=observed, after=after
    )

    assert (remaining.p10, remaining.p50, remaining.p90) == pytest.approx(expected, abs=0.1)


def test_the_odds_of_a_deadline_grow_with_the_time_that_is_left() -> None:
    remaining = RemainingTime(p10=80.0, p50=100.0, p90=140.0)

    assert [remaining.probability_within(s) for s in (0, 80, 100, 140)] == [0.0, 0.1, 0.5, 0.9]
    assert remaining.probability_within(1000) == 1.0


@pytest.mark.parametrize("per_hour", [0.02, 0.1, 0.3])
def test_eight_of_ten_lives_end_between_p10_and_p90(per_hour: float) -> None:
    """Where the rate is the plan's, give or take what two evictions leave open."""
    draw = random.Random(7)
    inputs = replace(CALM, seconds_per_step=20.0, evictions_per_second=per_hour / 3600)
    jobs = [(draw.randint(500, 8000), draw.gauss(20, 20 * 0.1 / 1.2816)) for _ in range(1000)]
    inside = 0
    for steps, pace in jobs:
        remaining = forecast_remaining(inputs, steps=steps, seconds_per_step=20.0, running=True)
        inside += (
            remaining.p10
            <= _lived(steps * pace, per_hour * draw.gammavariate(2, 0.5), inputs, draw)
            <= remaining.p90
        )

    assert 0.75 <= inside / len(jobs) <= 0.85


def _lived(work: float, per_hour: float, inputs: ForecastInputs, draw: random.Random) -> float:
    """Seconds until the work is done, evictions as they come."""
    elapsed = 0.0
    while (life := draw.expovariate(per_hour / 3600)) < work:
        lost_s = min(life, draw.uniform(0, inputs.checkpoint_seconds))
        work -= life - lost_s
        elapsed += life + inputs.recovery_seconds
    return elapsed + work


def test_the_verification_comes_after_the_last_step() -> None:
    verified = replace(CALM, verify_seconds=60.0)

    assert forecast_remaining(CALM, steps=0, seconds_per_step=10.0, running=False).p90 == 0.0
    assert forecast_remaining(verified, steps=0, seconds_per_step=10.0, running=True).p50 == 60.0
    assert forecast_remaining(verified, steps=10, seconds_per_step=10.0, running=True).p50 == 160.0
