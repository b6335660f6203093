"""What a choice of where to run next is told of evictions, and of what is sold out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from contract.choices import OnRisk
from service.domain.cloud.fleet import Price
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.placement import policy
from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory
from service.domain.placement.offering_choice import (
    OfferingChoice,
    OfferingState,
    RemainingWork,
    back_to_spot,
    build_policy_state,
    choose,
    deadline_risk,
)
from service.domain.placement.policy_state import CurrentHold, Decision
from service.domain.planning.forecast import MEASURED_SPREAD
from service.domain.planning.option import Option
from service.domain.spot.capacity_backoff import FIRST_BACKOFF, Shortage, record_refusal
from service.domain.states import CapacityType
from tests.unit.performance.test_simulation import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CHOSEN = option("eastus", 1.0)
FULL = replace(CHOSEN, offering=replace(CHOSEN.offering, capacity_type=CapacityType.ON_DEMAND))
MINUTE = timedelta(minutes=1)


def rate(past: CapacityHistory) -> float | None:
    """Evictions per hour that the policy takes for the band's, of two machines."""
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=JobConstraints())
    offering = OfferingState(option=CHOSEN, price=CHOSEN.price)
    candidates = build_policy_state([offering], work, NOW, 2, history=past).candidates
    return candidates[0].evictions_per_hour


def test_the_newest_band_counts_or_else_that_of_the_plan_which_may_have_no_length() -> None:
    planned = CHOSEN.expected_evictions / CHOSEN.duration_p50 * policy.HOUR

    assert rate(CapacityHistory(bands={CHOSEN.offering: 0.25})) == 0.5
    assert rate(NO_HISTORY) == pytest.approx(planned)

    offering = OfferingState(option=replace(CHOSEN, duration_p50=0.0), price=CHOSEN.price)
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=JobConstraints())
    assert build_policy_state([offering], work, NOW, 2).candidates[0].evictions_per_hour == 0.0


@pytest.mark.parametrize(("steps", "seconds"), [(-3, 1.0), (0, 1.0), (1, 10.0)])
def test_work_that_is_done_still_takes_a_second(steps: int, seconds: float) -> None:
    assert (
        RemainingWork(steps=steps, seconds_per_step=10.0, terms=JobConstraints()).seconds(CHOSEN)
        == seconds
    )


def test_an_eviction_undoes_half_of_the_interval_in_force() -> None:
    bought = option("westus", 2.0)
    away = replace(bought.offering, capacity_type=CapacityType.ON_DEMAND)
    paid = replace(bought, offering=away, checkpoint_seconds=3600.0)
    measured = RemainingWork(
        steps=360, seconds_per_step=10.0, terms=JobConstraints(), checkpoint_s=500.0
    )
    planned = replace(measured, checkpoint_s=None)
    states = [OfferingState(option=o, price=o.price) for o in (paid, CHOSEN)]

    assert build_policy_state(states, measured, NOW, 2).lost_s == 250.0
    assert build_policy_state(states, planned, NOW, 2).lost_s == CHOSEN.checkpoint_seconds / 2


def sold_out(nodes: int, ends_at: datetime = NOW + FIRST_BACKOFF) -> OfferingState:
    """Refused 25 times in a row, the last time to a job of so many machines."""
    shortage = Shortage(
        offering=CHOSEN.offering,
        since=NOW - timedelta(hours=3),
        ends_at=ends_at,
        in_a_row=25,
        nodes=nodes,
        reason="AllocationFailed",
    )
    return OfferingState(option=CHOSEN, price=CHOSEN.price, shortage=shortage)


def choice(
    offering: OfferingState, nodes: int, job_id: str = "job", now: datetime = NOW
) -> OfferingChoice:
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=JobConstraints())
    return choose([offering], work, job_id, now, nodes)


def test_what_is_sold_out_to_a_gang_is_asked_for_by_a_smaller_job() -> None:
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=JobConstraints())
    small, gang = (build_policy_state([sold_out(8)], work, NOW, nodes) for nodes in (1, 8))

    assert choice(sold_out(8), nodes=1).states == (sold_out(8),)
    assert choice(sold_out(8), nodes=8).states == ()
    assert (small.outage_s, small.candidates[0].refused_s) == (0.0, None)
    assert (gang.outage_s, gang.candidates[0].refused_s) == (3 * 3600.0, 0.0)


def test_who_waits_is_told_of_how_many_machines_there_are_none() -> None:
    begin = "Azure has no capacity for"
    refusals = f"{CHOSEN.offering}: refused 25 times in a row since "

    assert choice(sold_out(8), nodes=16).why.startswith(f"{begin} 8 or more machines of {refusals}")
    assert choice(sold_out(1), nodes=16).why.startswith(f"{begin} {refusals}")


def test_at_the_end_of_each_pause_another_job_comes_first() -> None:
    def first(minutes: int) -> str:
        ends_at = NOW + timedelta(minutes=minutes)
        offering, now = sold_out(1, ends_at), ends_at - timedelta(seconds=1)
        looks = {job: choice(offering, 1, job, now).check_at or NOW for job in ("a", "b", "c", "d")}
        return min(looks, key=lambda job: looks[job])

    first_jobs = [first(minutes) for minutes in range(400)]

    assert all(60 <= first_jobs.count(job) <= 140 for job in ("a", "b", "c", "d"))


def risk(terms: JobConstraints, *options: Option, minutes: float) -> Decision | None:
    """Return the decision for an hour of work without machines, ``minutes`` before its deadline."""
    work = RemainingWork(
        steps=360, seconds_per_step=10.0, terms=replace(terms, deadline=NOW + minutes * MINUTE)
    )
    return deadline_risk(
        [OfferingState(option=o, price=o.price) for o in options], work, None, NOW, 2
    )


def test_a_job_that_waits_for_spot_is_at_risk_once_a_start_and_what_is_left_do_not_fit() -> None:
    starts, margin = CHOSEN.recovery_seconds / 60, 60 * MEASURED_SPREAD
    notifying = JobConstraints(on_deadline_risk=OnRisk.NOTIFY)

    assert risk(notifying, CHOSEN, minutes=60 + starts + margin + 1) is None
    assert risk(notifying, CHOSEN, minutes=60 + starts + margin - 1) is not None


def test_a_job_is_cancelled_for_no_machines_that_it_would_never_get() -> None:
    slow = replace(FULL, seconds_per_step=20.0)
    enough = 60 + CHOSEN.recovery_seconds / 60 + 60 * MEASURED_SPREAD + 1
    notifying, ends = (
        JobConstraints(on_deadline_risk=risk) for risk in (OnRisk.NOTIFY, OnRisk.CANCEL)
    )

    assert risk(notifying, CHOSEN, slow, minutes=enough) is not None
    assert risk(ends, CHOSEN, slow, minutes=enough) is None


def test_what_may_be_had_on_demand_alone_is_not_at_risk_of_spot() -> None:
    ends = JobConstraints(on_deadline_risk=OnRisk.CANCEL)
    dear = replace(ends, max_price=Decimal("0.01"))

    assert risk(ends, FULL, minutes=61) is None
    assert risk(dear, FULL, minutes=61) is None
    assert risk(dear, FULL, CHOSEN, minutes=300) is None


@pytest.mark.parametrize("on_risk", OnRisk)
def test_only_who_switches_is_asked_for_at_full_price_however_late_it_is(on_risk: OnRisk) -> None:
    terms = JobConstraints(deadline=NOW + 65 * MINUTE, on_deadline_risk=on_risk)
    work = RemainingWork(steps=360, seconds_per_step=10.0, terms=terms)
    states = [OfferingState(option=o, price=o.price) for o in (CHOSEN, FULL)]
    first = choose(states, work, "job", NOW, 2).states[0].offering

    assert first == (FULL if on_risk is OnRisk.SWITCH else CHOSEN).offering


TERMS = JobConstraints(deadline=NOW + timedelta(hours=90))
LIKELY = OfferingState(
    option=CHOSEN, price=CHOSEN.price, has_signals=True, likely_since=NOW - timedelta(hours=1)
)


def on_demand(region: str = "eastus") -> OfferingState:
    offering = replace(CHOSEN.offering, region=region, capacity_type=CapacityType.ON_DEMAND)
    price = Price(hourly=Decimal(4), on_demand_hourly=Decimal(4))
    return OfferingState(option=replace(CHOSEN, offering=offering, price=price), price=price)


def without_room(offering: OfferingState) -> OfferingState:
    return replace(
        offering, shortage=record_refusal(None, offering.offering, 1, "no room", NOW, NOW)
    )


def decided(*paid: OfferingState, terms: JobConstraints = TERMS) -> Decision | None:
    """Ten hours of work are left; the first of ``paid`` is held."""
    work = RemainingWork(steps=3600, seconds_per_step=10.0, terms=terms)
    hold = CurrentHold(key=(paid[0].offering, 2), age_s=3600.0)
    return back_to_spot([LIKELY, *paid], work, hold, NOW, 2)


@pytest.mark.parametrize(
    "states",
    [[on_demand()], [without_room(on_demand()), on_demand("uksouth")]],
    ids=["it", "another"],
)
def test_on_demand_that_can_be_had_again_is_left_and_the_deadline_rests_on_it(
    states: list[OfferingState],
) -> None:
    decision = decided(*states)

    assert decision is not None
    assert decision.net is not None
    assert decision.net.offering == states[-1].offering


@pytest.mark.parametrize(
    ("state", "terms"),
    [
        (without_room(on_demand()), TERMS),
        (on_demand(), replace(TERMS, max_price=Decimal(2))),
        (on_demand("uksouth"), replace(TERMS, regions=("eastus",))),
    ],
    ids=["sold out", "too dear by now", "in a region that is not allowed any more"],
)
def test_what_cannot_be_had_again_is_kept(state: OfferingState, terms: JobConstraints) -> None:
    assert decided(state, terms=terms) is None
