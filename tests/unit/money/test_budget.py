"""Money adds up, what a budget keeps aside, and when machines must go so that its cap holds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from service.domain.money.budget import (
    CAP_PASSED,
    PROJECT_BUDGET,
    Allowance,
    BudgetHold,
    allowed_silence,
    budget_standing,
    exhausted_message,
    reached_threshold,
    required_to_start,
)
from service.domain.money.cost import LedgerRow, cents, cost_of, machine_cost, machine_hours

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
# Together an hour from the last training step to deleted machines.
EVEN = Allowance(
    save=timedelta(minutes=10),
    delete=timedelta(minutes=10),
    outage=timedelta(minutes=30),
    detection=timedelta(minutes=10),
    price_rise=Decimal(0),
)
RUNS = BudgetHold(hourly=Decimal(10), machines=2, billed=2, known=2, ordered_at=NOW - HOUR)


def test_a_running_attempt_keeps_what_its_end_may_cost() -> None:
    standing = budget_standing(Decimal(100), Decimal(30), [RUNS], NOW, EVEN)

    assert [standing.spent, standing.reserved, standing.remaining] == [
        Decimal(30),
        Decimal(20),
        Decimal(50),
    ]


def test_the_end_is_kept_of_all_machines_that_run_or_may_come() -> None:
    ordered, larger = replace(RUNS, billed=0, known=0), replace(RUNS, billed=3, known=3)

    assert [hold.reserve(EVEN) for hold in (ordered, RUNS, larger)] == [20, 20, 30]
    assert budget_standing(Decimal(100), Decimal(0), [ordered, larger], NOW, EVEN).rate == 50


def test_each_attempt_keeps_the_time_that_its_own_job_needs_to_save_also_while_it_leaves() -> None:
    small, unknown = replace(RUNS, save_seconds=60.0), RUNS
    longest = replace(RUNS, save_seconds=7200.0)

    reserves = [hold.reserve(EVEN) for hold in (small, unknown, longest)]

    assert reserves == [cost_of(seconds=60 * 51, hourly=Decimal(20)), Decimal(20), Decimal(20)]
    assert replace(small, is_terminating=True).reserve(EVEN) == replace(
        RUNS, is_terminating=True
    ).reserve(EVEN)

    leaves = replace(RUNS, is_terminating=True)
    standing = budget_standing(Decimal(100), Decimal(30), [leaves, RUNS], NOW, EVEN)
    assert standing.reserved == 20 + cost_of(seconds=60 * 50, hourly=Decimal(20))


def test_machines_that_no_bill_shows_yet_count_from_when_they_were_asked_for() -> None:
    ordered = replace(RUNS, billed=0, known=0)

    assert ordered.unmetered(NOW) == 20
    assert replace(ordered, ordered_at=None).unmetered(NOW) == 0
    assert RUNS.unmetered(NOW) == 0

    refilled = replace(RUNS, billed=1, refilled_at=NOW - timedelta(minutes=30))

    assert refilled.unmetered(NOW) == 5


def test_machines_go_when_what_is_left_covers_no_more_than_their_end() -> None:
    enough = budget_standing(Decimal("50.01"), Decimal(30), [RUNS], NOW, EVEN)
    short = budget_standing(Decimal(50), Decimal(30), [RUNS], NOW, EVEN)

    assert not enough.is_exhausted
    assert short.is_exhausted


def test_what_a_start_needs_covers_the_boot_and_the_end_at_prices_that_may_rise() -> None:
    assert required_to_start(Decimal(20), EVEN, timedelta(minutes=15)) == 25

    assert replace(EVEN, price_rise=Decimal("0.1")).stopping_cost(Decimal(20)) == 22


def test_each_threshold_is_told_once_and_the_highest_alone() -> None:
    half = budget_standing(Decimal(100), Decimal(76), [], NOW, EVEN)
    past = budget_standing(Decimal(100), Decimal(101), [], NOW, EVEN)

    assert [reached_threshold(half, last) for last in (0, 50, 75, 90)] == [75, 75, 0, 0]
    assert [reached_threshold(past, last) for last in (90, CAP_PASSED)] == [CAP_PASSED, 0]


def test_nodes_that_hear_nothing_train_on_for_as_long_as_there_is_money() -> None:
    roomy = budget_standing(Decimal(100), Decimal(30), [RUNS], NOW, EVEN)
    tight = budget_standing(Decimal(45), Decimal(30), [RUNS], NOW, EVEN)
    standing = budget_standing(Decimal(20), Decimal(30), [RUNS], NOW, EVEN)

    assert allowed_silence(roomy, EVEN) == timedelta(minutes=30)
    assert allowed_silence(tight, EVEN) == timedelta(minutes=15)
    assert allowed_silence(standing, EVEN) == timedelta(0)

    short_outage = replace(EVEN, outage=timedelta(minutes=1))
    ample = budget_standing(Decimal(100), Decimal(30), [RUNS], NOW, short_outage)
    little = budget_standing(Decimal("40.2"), Decimal(30), [RUNS], NOW, short_outage)
    assert allowed_silence(ample, short_outage) == timedelta(minutes=30)
    assert little.remaining == Decimal("10.2") - cost_of(seconds=60 * 31, hourly=Decimal(20))
    assert timedelta(0) < allowed_silence(little, short_outage) < timedelta(minutes=1)


@given(
    cap=st.integers(1, 500),
    rates=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    save=st.floats(0, 1),
    delete=st.floats(0, 1),
    away=st.floats(0, 1),
    fraction=st.floats(0, 1),
    rise=st.floats(0, 1),
    saves=st.sampled_from([None, 30.0, 300.0, 7200.0]),
)
def test_machines_told_to_go_when_money_ends_never_cost_more_than_the_cap(
    cap: int,
    rates: list[int],
    save: float,
    delete: float,
    away: float,
    fraction: float,
    rise: float,
    saves: float | None,
) -> None:
    """Whatever part of the allowance the end takes, counted from the last look that said go on."""
    allowance = Allowance().of_job(saves)
    holds = [
        BudgetHold(hourly=Decimal(r), machines=1, billed=1, known=1, save_seconds=saves)
        for r in rates
    ]
    reserved = sum((h.reserve(allowance) for h in holds), Decimal(0))
    spent = Decimal(cap) - reserved + Decimal("1e-9")  # the first look at which they must go
    if spent <= 0:
        return
    assert budget_standing(Decimal(cap), spent, holds, NOW, allowance).is_exhausted
    takes = (
        allowance.save * save
        + allowance.delete * delete
        + allowance.outage * away
        + allowance.detection * fraction
    )
    dearer = 1 + allowance.price_rise * Decimal(str(rise))
    bill = spent + cost_of(seconds=takes.total_seconds(), hourly=Decimal(sum(rates))) * dearer

    assert bill <= cap + Decimal("2e-9")


def test_what_a_job_stopped_for_begins_with_whose_budget_it_was() -> None:
    of_project = budget_standing(Decimal(40), Decimal(30), [RUNS], NOW, EVEN, whose=PROJECT_BUDGET)
    short = exhausted_message(of_project, "ftjob-1", short_of=Decimal(20))
    own = exhausted_message(replace(of_project, whose="budget"), "ftjob-1")

    assert short.startswith(PROJECT_BUDGET)
    assert exhausted_message(of_project, "ftjob-1").startswith(PROJECT_BUDGET)
    assert own.startswith("budget")


START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(0, 10**11).map(lambda us: START + timedelta(microseconds=us))
PRICES = st.decimals(0, 200, places=6)


@st.composite
def rows(draw: st.DrawFn) -> LedgerRow:
    started_at, ended_at = sorted((draw(MOMENTS), draw(MOMENTS)))
    return LedgerRow(
        attempt_id="att-1",
        vm_id="vm-1",
        started_at=started_at,
        ended_at=draw(st.sampled_from([ended_at, None])),
        hourly=draw(PRICES),
        on_demand_hourly=draw(PRICES),
    )


def row(hours: float, hourly: str = "3.60", on_demand: str = "32.77") -> LedgerRow:
    return LedgerRow(
        attempt_id="att-1",
        vm_id="vm-1",
        started_at=START,
        ended_at=START + timedelta(hours=hours),
        hourly=Decimal(hourly),
        on_demand_hourly=Decimal(on_demand),
    )


def test_machines_cost_their_hours_until_they_end_or_until_now() -> None:
    now = START + timedelta(days=1)

    assert machine_cost([row(0.5), row(0.5)], now) == Decimal("3.60")
    assert machine_hours([row(0.5), row(0.5)], now) == 1

    running = replace(row(1), ended_at=None)

    assert machine_cost([running], START + timedelta(hours=2)) == Decimal("7.20")

    assert machine_cost([], START) == 0


def test_cents_are_rounded_half_to_even() -> None:
    assert [str(cents(Decimal(a))) for a in ("1.005", "1.015", "2")] == ["1.00", "1.02", "2.00"]


@given(st.lists(rows()), MOMENTS, MOMENTS)
def test_time_never_lowers_what_was_spent(
    ledger: list[LedgerRow], first: datetime, second: datetime
) -> None:
    earlier, later = sorted((first, second))

    assert 0 <= machine_cost(ledger, earlier) <= machine_cost(ledger, later)


@given(st.lists(rows()), st.lists(rows()), MOMENTS)
def test_spending_is_additive_over_rows(
    rows: list[LedgerRow], other_rows: list[LedgerRow], now: datetime
) -> None:
    apart = machine_cost(rows, now) + machine_cost(other_rows, now)

    assert abs(machine_cost(rows + other_rows, now) - apart) < Decimal("1e-18")


@given(rows(), MOMENTS, MOMENTS)
def test_splitting_an_interval_changes_nothing(
    row: LedgerRow, split_at: datetime, now: datetime
) -> None:
    end = row.ended_at or now
    split_at = max(row.started_at, min(split_at, end))
    halves = [replace(row, ended_at=split_at), replace(row, started_at=split_at)]

    assert machine_cost(halves, now) == machine_cost([row], now)
