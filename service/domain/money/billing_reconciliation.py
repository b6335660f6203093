"""Reconcile our ledger with Azure's bill and explain the differences. Pure.

Azure publishes the cost of a day a day late and includes what our ledger of machines does not:
disks, addresses, traffic. Machine costs differ by metered time and by the hourly price.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from service.domain.money.cost import cents

MACHINES = "Virtual Machines"
UNTAGGED = "(untagged)"  # in place of an attempt: nothing of ours says whose it is
DELAY = timedelta(hours=24)  # after a day's end, until Azure tells all of it
_DISKS = {"Storage"}
_NETWORK = {"Bandwidth", "Virtual Network", "NAT Gateway", "Load Balancer", "Private Link"}
_ZERO = Decimal(0)
_ROUNDING = Decimal("0.01")  # of one attempt on one day: nothing to explain
_SPANS = (
    "Azure bills from allocation to deallocation; the ledger counts from when the service first "
    "saw a machine until it saw that the machine was gone"
)
_MACHINES_ONLY = "The ledger counts machine time only"
_SHOWN = Decimal("0.00005")  # a smaller difference has no digit in what is shown


@dataclass(frozen=True, kw_only=True)
class MeteredDay:
    """What our ledger has of an attempt on a day (UTC)."""

    day: date
    attempt_id: str
    hours: Decimal  # of all machines
    amount: Decimal  # US dollars


@dataclass(frozen=True, kw_only=True)
class BilledDay:
    """What Azure billed of one meter category for an attempt on a day."""

    day: date
    attempt_id: str  # by the tag; "": ours without one; UNTAGGED: not marked as ours
    category: str  # as Azure names it
    quantity: Decimal  # hours, where it is machines
    amount: Decimal  # US dollars


class BilledPeriod(NamedTuple):
    """Days with a complete bill, both ends included."""

    since: date
    until: date


class DifferenceCause(StrEnum):
    """Why the bill differs from the ledger."""

    DELAY = "delay"
    DISKS = "disks"
    NETWORK = "network"
    OTHER = "other_meters"
    TIME = "time_of_meter"
    PRICE = "price"
    ROUNDING = "rounding"


@dataclass(frozen=True, kw_only=True)
class BillDifference:
    """A part of the amount billed beyond what we metered (negative: less), with its cause."""

    cause: DifferenceCause
    amount: Decimal
    why: str


@dataclass(frozen=True, kw_only=True)
class ReconciliationLine:
    """Metered and billed amounts of one attempt, or of all."""

    metered: Decimal
    billed: Decimal
    differences: tuple[BillDifference, ...]


@dataclass(frozen=True, kw_only=True)
class BillReconciliation:
    """The reconciliation by attempt, and in total."""

    total: ReconciliationLine
    attempts: Mapping[str, ReconciliationLine]
    period: BilledPeriod | None  # None: no day is billed in full yet


@dataclass
class _Sums:
    """Sums of one attempt; amounts are billed minus metered."""

    metered: Decimal = _ZERO
    billed: Decimal = _ZERO
    causes: defaultdict[DifferenceCause, Decimal] = field(
        default_factory=lambda: defaultdict(Decimal)
    )
    late_hours: Decimal = _ZERO  # that Azure's meters ran longer, less those that they ran shorter

    def add(self, cause: DifferenceCause, amount: Decimal) -> None:
        """Add an amount to a cause; ignore zero."""
        if amount:
            self.causes[cause] += amount


def complete_period(told_at: datetime | None, since: date | None) -> BilledPeriod | None:
    """Return the days from ``since`` on whose bill was complete at ``told_at``."""
    if told_at is None or since is None:
        return None
    until = (told_at.astimezone(UTC) - DELAY).date() - timedelta(days=1)
    return BilledPeriod(since, until) if since <= until else None


def merge_rows(rows: Iterable[BilledDay]) -> list[BilledDay]:
    """Merge rows of the same day, attempt and category into one."""
    merged: dict[tuple[date, str, str], BilledDay] = {}
    for row in rows:
        key = (row.day, row.attempt_id, row.category)
        if (previous := merged.get(key)) is not None:
            quantity, amount = previous.quantity + row.quantity, previous.amount + row.amount
            row = replace(previous, quantity=quantity, amount=amount)  # noqa: PLW2901 - of all so far
        merged[key] = row
    return list(merged.values())


def reconcile(
    metered: Iterable[MeteredDay], billed: Iterable[BilledDay], period: BilledPeriod | None
) -> BillReconciliation:
    """Reconcile metered and billed days; the causes sum up to the whole difference."""
    metered_days = {(m.attempt_id, m.day): m for m in metered}
    billed_days: defaultdict[tuple[str, date], list[BilledDay]] = defaultdict(list)
    for row in billed:
        billed_days[row.attempt_id, row.day].append(row)
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    for key in sorted(metered_days.keys() | billed_days.keys()):
        attempt_id, day = key
        in_period = period is not None and period.since <= day <= period.until
        _add(sums[attempt_id], metered_days.get(key), billed_days.get(key, ()), in_period=in_period)
    total = _sum_parts(sums.values())
    return BillReconciliation(
        total=_line(total, period),
        attempts={name: _line(of, period) for name, of in sums.items()},
        period=period,
    )


def _add(
    to: _Sums, metered_day: MeteredDay | None, billed_rows: Sequence[BilledDay], *, in_period: bool
) -> None:
    """Add one attempt's day."""
    amount, hours = (metered_day.amount, metered_day.hours) if metered_day else (_ZERO, _ZERO)
    machines = [row for row in billed_rows if row.category == MACHINES]
    paid = sum((row.amount for row in machines), _ZERO)
    to.metered += amount
    to.billed += sum((row.amount for row in billed_rows), _ZERO)
    for row in billed_rows:
        if row.category != MACHINES:
            to.add(_of_category(row.category), row.amount)
    if not in_period:
        to.add(DifferenceCause.DELAY, paid - amount)
    elif abs(paid - amount) <= _ROUNDING:
        to.add(DifferenceCause.ROUNDING, paid - amount)
    else:
        billed_hours = sum((row.quantity for row in machines), _ZERO)
        dollars, length = (paid, billed_hours) if billed_hours else (amount, hours)
        price = dollars / length if length else _ZERO
        longer = billed_hours - hours
        to.late_hours += longer
        to.add(DifferenceCause.TIME, longer * price)
        to.add(DifferenceCause.PRICE, paid - amount - longer * price)


def _of_category(name: str) -> DifferenceCause:
    if name in _DISKS:
        return DifferenceCause.DISKS
    return DifferenceCause.NETWORK if name in _NETWORK else DifferenceCause.OTHER


def _sum_parts(parts: Iterable[_Sums]) -> _Sums:
    total = _Sums()
    for part in parts:
        total.metered += part.metered
        total.billed += part.billed
        total.late_hours += part.late_hours
        for cause, amount in part.causes.items():
            total.add(cause, amount)
    return total


def _line(of: _Sums, period: BilledPeriod | None) -> ReconciliationLine:
    """Build a line; causes below a cent are added to the largest one."""
    small = {c: a for c, a in of.causes.items() if not cents(a)}
    large = {c: of.causes[c] for c in DifferenceCause if c in of.causes and c not in small}
    residual = sum(small.values(), _ZERO)
    if large or abs(residual) >= _SHOWN:
        largest = max(large or small, key=lambda c: abs(of.causes[c]))
        large[largest] = residual + large.get(largest, _ZERO)
    differences = tuple(
        BillDifference(cause=cause, amount=amount, why=_why(cause, amount, of.late_hours, period))
        for cause, amount in large.items()
    )
    return ReconciliationLine(metered=of.metered, billed=of.billed, differences=differences)


def _why(
    cause: DifferenceCause, amount: Decimal, late_hours: Decimal, period: BilledPeriod | None
) -> str:
    """Explain the cause to a user, in two sentences at most."""
    rounded = cents(abs(amount))
    dollars = f"${rounded}" if rounded else "Less than a cent"
    match cause:
        case DifferenceCause.DELAY:
            if period is None:
                return f"{dollars} cannot be compared yet: Azure has published no bill."
            return (
                f"{dollars} is from days whose bill is not complete yet (after {period.until}) or "
                f"was not asked for (before {period.since})."
            )
        case DifferenceCause.DISKS:
            return f"{dollars} is for the machines' disks. {_MACHINES_ONLY}."
        case DifferenceCause.NETWORK:
            return f"{dollars} is for network addresses and traffic. {_MACHINES_ONLY}."
        case DifferenceCause.OTHER:
            return f"{dollars} is for other meters. {_MACHINES_ONLY}."
        case DifferenceCause.TIME:
            return f"{dollars}: Azure billed {_time_difference(late_hours, amount)}. {_SPANS}."
        case DifferenceCause.PRICE:
            direction = "more" if amount > 0 else "less"
            return f"{dollars}: Azure billed {direction} for an hour than its price list says."
        case DifferenceCause.ROUNDING:
            return f"{dollars} is rounding: at most a cent for each attempt and day."


def _time_difference(hours: Decimal, amount: Decimal) -> str:
    """Return the difference in machine-minutes, or that it goes both ways."""
    if hours * amount <= 0:
        return "more time for some machines and less for others"
    return f"{abs(hours * 60):.0f} machine-minutes {'more' if amount > 0 else 'fewer'}"


def start_of_day(day: date) -> datetime:
    """Return the moment at which the day begins (UTC)."""
    return datetime.combine(day, time(), UTC)
