"""Money adds up: over rows, over time, and whichever way an interval is cut."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from service.domain.money.cost import LedgerRow, cents, machine_cost, machine_hours

START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(0, 10**11).map(lambda us: START + timedelta(microseconds=us))
PRICES = st.decimals(0, 200, places=6)


@st.composite
def rows(draw: st.DrawFn) -> LedgerRow:
    began, ended = sorted((draw(MOMENTS), draw(MOMENTS)))
    return LedgerRow(
        attempt_id="att-1",
        vm_id="vm-1",
        started_at=began,
        ended_at=draw(st.sampled_from([ended, None])),
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
    ledger: list[LedgerRow], one: datetime, other: datetime
) -> None:
    earlier, later = sorted((one, other))

    assert 0 <= machine_cost(ledger, earlier) <= machine_cost(ledger, later)


@given(st.lists(rows()), st.lists(rows()), MOMENTS)
def test_spending_is_additive_over_rows(
    some: list[LedgerRow], others: list[LedgerRow], now: datetime
) -> None:
    apart = machine_cost(some, now) + machine_cost(others, now)

    assert abs(machine_cost(some + others, now) - apart) < Decimal("1e-18")


@given(rows(), MOMENTS, MOMENTS)
def test_splitting_an_interval_changes_nothing(
    whole: LedgerRow, cut: datetime, now: datetime
) -> None:
    end = whole.ended_at or now
    cut = max(whole.started_at, min(cut, end))
    halves = [replace(whole, ended_at=cut), replace(whole, started_at=cut)]

    assert machine_cost(halves, now) == machine_cost([whole], now)
