"""Our ledger against Azure's bill: the difference is explained to the last cent."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.money.billing_reconciliation import (
    MACHINES,
    BilledDay,
    BilledPeriod,
    BillReconciliation,
    DifferenceCause,
    MeteredDay,
    ReconciliationLine,
    complete_period,
    merge_rows,
    reconcile,
)

MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)
SUNDAY = MONDAY - timedelta(days=1)
TOLD = BilledPeriod(MONDAY, MONDAY)  # Tuesday is not whole, and of Sunday nobody asked


def metered_day(
    amount: str, hours: str = "2", day: date = MONDAY, attempt: str = "att-1"
) -> MeteredDay:
    return MeteredDay(day=day, attempt_id=attempt, hours=Decimal(hours), amount=Decimal(amount))


def billed_day(
    amount: str,
    quantity: str = "2",
    category: str = MACHINES,
    day: date = MONDAY,
    attempt: str = "att-1",
) -> BilledDay:
    return BilledDay(
        day=day,
        attempt_id=attempt,
        category=category,
        quantity=Decimal(quantity),
        amount=Decimal(amount),
    )


def causes(line: ReconciliationLine) -> dict[DifferenceCause, Decimal]:
    return {d.cause: d.amount for d in line.differences}


def why(reconciliation: BillReconciliation) -> str:
    return " ".join(d.why for d in reconciliation.total.differences)


def test_what_agrees_needs_no_word_and_several_rows_are_one_sum() -> None:
    reconciliation = reconcile([metered_day("16")], [billed_day("16")], TOLD)

    assert reconciliation.total == ReconciliationLine(
        metered=Decimal(16), billed=Decimal(16), differences=()
    )
    assert reconciliation.period == TOLD

    rows = [billed_day("1", "0.5"), billed_day("2", "0.25"), billed_day("4", category="Storage")]
    assert merge_rows(rows) == [billed_day("3", "0.75"), billed_day("4", category="Storage")]


def test_disks_network_and_other_meters_are_no_machines() -> None:
    other_meters = [billed_day(*row) for row in (("1", "9", "Storage"), ("2", "9", "Bandwidth"))]
    reconciliation = reconcile(
        [metered_day("16")],
        [billed_day("16"), *other_meters, billed_day("3", "1", "Key Vault")],
        TOLD,
    )

    assert causes(reconciliation.total) == {
        DifferenceCause.DISKS: 1,
        DifferenceCause.NETWORK: 2,
        DifferenceCause.OTHER: 3,
    }
    assert "$1.00 is for the machines' disks" in why(reconciliation)


def test_meters_that_run_longer_and_hours_that_cost_more_are_told_apart() -> None:
    longer = reconcile([metered_day("16", "2")], [billed_day("20", "2.5")], TOLD)
    dearer = reconcile([metered_day("16", "2")], [billed_day("18", "2")], TOLD)
    reconciliation = reconcile([metered_day("16", "2")], [billed_day("22.50", "2.5")], TOLD)

    assert causes(longer.total) == {DifferenceCause.TIME: 4}
    assert "Azure billed 30 machine-minutes more" in why(longer)
    assert causes(dearer.total) == {DifferenceCause.PRICE: 2}
    assert "billed more for an hour" in why(dearer)
    assert causes(reconciliation.total) == {
        DifferenceCause.TIME: Decimal("4.5"),
        DifferenceCause.PRICE: 2,
    }
    never = reconcile([metered_day("16", "2")], [], TOLD)
    assert causes(never.total) == {DifferenceCause.TIME: -16}
    assert "Azure billed 120 machine-minutes fewer" in why(never)


def test_days_that_azure_has_not_told_in_full_are_not_judged() -> None:
    reconciliation = reconcile(
        [metered_day("16", day=TUESDAY)], [billed_day("4", "0.5", day=TUESDAY)], TOLD
    )
    never = reconcile([metered_day("16")], [], None)

    assert causes(reconciliation.total) == {DifferenceCause.DELAY: -12}
    assert "$12.00 is from days whose bill is not complete yet (after 2026-11-16)" in why(
        reconciliation
    )
    before = reconcile([metered_day("16", day=SUNDAY)], [], TOLD)
    assert causes(before.total) == {DifferenceCause.DELAY: -16}
    assert "not asked for (before 2026-11-16)" in why(before)
    assert never.period is None
    assert causes(never.total) == {DifferenceCause.DELAY: -16}
    assert "Azure has published no bill" in why(never)


def test_a_cent_an_attempt_and_day_is_rounding_or_counts_with_the_largest_cause() -> None:
    days = [(f"att-{n}", MONDAY) for n in range(4)]
    reconciliation = reconcile(
        [metered_day("16", attempt=name, day=day) for name, day in days],
        [billed_day("16.005", attempt=name, day=day) for name, day in days],
        TOLD,
    )

    assert causes(reconciliation.total) == {DifferenceCause.ROUNDING: Decimal("0.020")}
    assert {len(line.differences) for line in reconciliation.attempts.values()} == {1}
    assert "$0.02 is rounding: at most a cent" in why(reconciliation)

    alone = reconcile([metered_day("16")], [billed_day("16.004")], TOLD)
    beside = reconcile(
        [metered_day("16")], [billed_day("16.004"), billed_day("3", category="Storage")], TOLD
    )
    dust = reconcile([metered_day("16")], [billed_day("16.00000001")], TOLD)
    assert causes(alone.total) == {DifferenceCause.ROUNDING: Decimal("0.004")}
    assert "Less than a cent is rounding" in why(alone)
    assert causes(beside.total) == {DifferenceCause.DISKS: Decimal("3.004")}
    assert dust.total.differences == ()


@pytest.mark.parametrize(
    ("told_at", "since", "period"),
    [
        (datetime(2026, 11, 18, 12, tzinfo=UTC), SUNDAY, BilledPeriod(SUNDAY, MONDAY)),
        (datetime(2026, 11, 18, 12, tzinfo=UTC), TUESDAY, None),  # of that day it is too soon
        (datetime(2026, 11, 18, 12, tzinfo=UTC), None, None),
        (None, SUNDAY, None),
    ],
)
def test_a_day_is_told_a_day_after_its_end_if_azure_was_asked_of_it(
    told_at: datetime | None, since: date | None, period: BilledPeriod | None
) -> None:
    assert complete_period(told_at, since) == period


def test_minutes_never_contradict_the_dollars_beside_them() -> None:
    # The first is longer but cheap (10 hours, $18.18), the second shorter but dear.
    metered = [metered_day("10", "1"), metered_day("100", "2", attempt="att-2")]
    billed = [billed_day("20", "11"), billed_day("50", "1", attempt="att-2")]
    reconciliation = reconcile(metered, billed, TOLD)

    # Though the hours together are longer.
    assert causes(reconciliation.total)[DifferenceCause.TIME] < 0
    assert "more time for some machines and less for others" in why(reconciliation)
    assert "machine-minutes" not in why(reconciliation)


amounts = st.decimals(min_value=0, max_value=1000, places=4)
hours = st.decimals(min_value=Decimal("0.01"), max_value=100, places=3)
days = st.sampled_from([SUNDAY, MONDAY, TUESDAY])
names = st.sampled_from(["att-1", "att-2"])
metered_rows = st.builds(MeteredDay, day=days, attempt_id=names, hours=hours, amount=amounts)
billed_rows = st.builds(
    BilledDay,
    day=days,
    attempt_id=names,
    category=st.sampled_from([MACHINES, "Storage", "Bandwidth", "Backup"]),
    quantity=st.one_of(st.just(Decimal(0)), hours),
    amount=amounts,
)


@given(
    st.lists(metered_rows, max_size=4, unique_by=lambda m: (m.attempt_id, m.day)),
    st.lists(billed_rows, max_size=6),
    st.sampled_from([TOLD, None]),
)
def test_the_causes_sum_up_to_the_difference(
    metered: list[MeteredDay], billed: list[BilledDay], period: BilledPeriod | None
) -> None:
    reconciliation = reconcile(metered, billed, period)

    assert reconciliation.total.billed == sum((b.amount for b in billed), Decimal(0))
    for line in (reconciliation.total, *reconciliation.attempts.values()):
        explained = sum(causes(line).values(), Decimal(0))
        assert abs(line.billed - line.metered - explained) <= Decimal("0.00005")  # shown as 0
