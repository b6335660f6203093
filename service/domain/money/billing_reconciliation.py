"""Our ledger against what Azure billed, and why they differ. Pure.

Azure tells the cost of a day a day late and counts what our ledger of machines does not: disks,
addresses, traffic. Machines differ by how long the meters ran and by the price of an hour.
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
class Metered:
    """What our ledger has of an attempt on a day (UTC)."""

    day: date
    attempt_id: str
    hours: Decimal  # of all machines
    amount: Decimal  # US dollars


@dataclass(frozen=True, kw_only=True)
class Billed:
    """What Azure billed of one kind of meter."""

    day: date
    attempt_id: str  # by the tag; "": ours without one; UNTAGGED: not marked as ours
    category: str  # as Azure names it
    quantity: Decimal  # hours, where it is machines
    amount: Decimal  # US dollars


class Told(NamedTuple):
    """Days of which Azure was asked and has told everything, both included."""

    since: date
    until: date


class Cause(StrEnum):
    """Why the bill is not the ledger."""

    DELAY = "delay"
    DISKS = "disks"
    NETWORK = "network"
    OTHER = "other_meters"
    TIME = "time_of_meter"
    PRICE = "price"
    ROUNDING = "rounding"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A part of what Azure billed more than we metered (less, if below 0), and why."""

    cause: Cause
    amount: Decimal
    why: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One attempt, or all of them."""

    metered: Decimal
    billed: Decimal
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """By attempt, and together."""

    whole: Line
    attempts: Mapping[str, Line]
    told: Told | None  # None: it has told no day in full


@dataclass
class _Sums:
    """Of one attempt; amounts are billed minus metered."""

    metered: Decimal = _ZERO
    billed: Decimal = _ZERO
    causes: defaultdict[Cause, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    late_hours: Decimal = _ZERO  # that Azure's meters ran longer, less those that they ran shorter

    def add(self, cause: Cause, amount: Decimal) -> None:
        """Nothing is no difference."""
        if amount:
            self.causes[cause] += amount


def settled(told_at: datetime | None, since: date | None) -> Told | None:
    """Days of which everything was there when Azure was asked at ``told_at``, from ``since`` on."""
    if told_at is None or since is None:
        return None
    until = (told_at.astimezone(UTC) - DELAY).date() - timedelta(days=1)
    return Told(since, until) if since <= until else None


def summed(rows: Iterable[Billed]) -> list[Billed]:
    """One for each day, attempt and category: Azure may tell one in several rows."""
    found: dict[tuple[date, str, str], Billed] = {}
    for row in rows:
        key = (row.day, row.attempt_id, row.category)
        if (known := found.get(key)) is not None:
            quantity, amount = known.quantity + row.quantity, known.amount + row.amount
            row = replace(known, quantity=quantity, amount=amount)  # noqa: PLW2901 - of all so far
        found[key] = row
    return list(found.values())


def reconcile(
    metered: Iterable[Metered], billed: Iterable[Billed], told: Told | None
) -> Reconciliation:
    """The difference is explained in full: causes sum up to it."""
    ours = {(m.attempt_id, m.day): m for m in metered}
    theirs: defaultdict[tuple[str, date], list[Billed]] = defaultdict(list)
    for row in billed:
        theirs[row.attempt_id, row.day].append(row)
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    for key in sorted(ours.keys() | theirs.keys()):
        attempt_id, day = key
        is_told = told is not None and told.since <= day <= told.until
        _add(sums[attempt_id], ours.get(key), theirs.get(key, ()), is_told=is_told)
    whole = _together(sums.values())
    return Reconciliation(
        whole=_line(whole, told),
        attempts={name: _line(of, told) for name, of in sums.items()},
        told=told,
    )


def _add(to: _Sums, ours: Metered | None, theirs: Sequence[Billed], *, is_told: bool) -> None:
    """One attempt on one day."""
    amount, hours = (ours.amount, ours.hours) if ours else (_ZERO, _ZERO)
    machines = [row for row in theirs if row.category == MACHINES]
    paid = sum((row.amount for row in machines), _ZERO)
    to.metered += amount
    to.billed += sum((row.amount for row in theirs), _ZERO)
    for row in theirs:
        if row.category != MACHINES:
            to.add(_of_category(row.category), row.amount)
    if not is_told:
        to.add(Cause.DELAY, paid - amount)
    elif abs(paid - amount) <= _ROUNDING:
        to.add(Cause.ROUNDING, paid - amount)
    else:
        ran = sum((row.quantity for row in machines), _ZERO)
        dollars, length = (paid, ran) if ran else (amount, hours)
        price = dollars / length if length else _ZERO
        longer = ran - hours
        to.late_hours += longer
        to.add(Cause.TIME, longer * price)
        to.add(Cause.PRICE, paid - amount - longer * price)


def _of_category(name: str) -> Cause:
    if name in _DISKS:
        return Cause.DISKS
    return Cause.NETWORK if name in _NETWORK else Cause.OTHER


def _together(parts: Iterable[_Sums]) -> _Sums:
    whole = _Sums()
    for part in parts:
        whole.metered += part.metered
        whole.billed += part.billed
        whole.late_hours += part.late_hours
        for cause, amount in part.causes.items():
            whole.add(cause, amount)
    return whole


def _line(of: _Sums, told: Told | None) -> Line:
    """Causes of less than a cent are counted with the largest one; alone, they are that one."""
    small = {c: a for c, a in of.causes.items() if not cents(a)}
    kept = {c: of.causes[c] for c in Cause if c in of.causes and c not in small}
    rest = sum(small.values(), _ZERO)
    if kept or abs(rest) >= _SHOWN:
        largest = max(kept or small, key=lambda c: abs(of.causes[c]))
        kept[largest] = rest + kept.get(largest, _ZERO)
    differences = tuple(
        Difference(cause=cause, amount=amount, why=_why(cause, amount, of.late_hours, told))
        for cause, amount in kept.items()
    )
    return Line(metered=of.metered, billed=of.billed, differences=differences)


def _why(cause: Cause, amount: Decimal, late_hours: Decimal, told: Told | None) -> str:
    """Explain the cause to a user, in two sentences at most."""
    some = cents(abs(amount))
    dollars = f"${some}" if some else "Less than a cent"
    match cause:
        case Cause.DELAY:
            if told is None:
                return f"{dollars} cannot be compared yet: Azure has published no bill."
            return (
                f"{dollars} is from days whose bill is not complete yet (after {told.until}) or "
                f"was not asked for (before {told.since})."
            )
        case Cause.DISKS:
            return f"{dollars} is for the machines' disks. {_MACHINES_ONLY}."
        case Cause.NETWORK:
            return f"{dollars} is for network addresses and traffic. {_MACHINES_ONLY}."
        case Cause.OTHER:
            return f"{dollars} is for other meters. {_MACHINES_ONLY}."
        case Cause.TIME:
            return f"{dollars}: Azure billed {_late(late_hours, amount)}. {_SPANS}."
        case Cause.PRICE:
            more = "more" if amount > 0 else "less"
            return f"{dollars}: Azure billed {more} for an hour than its price list says."
        case Cause.ROUNDING:
            return f"{dollars} is rounding: at most a cent for each attempt and day."


def _late(hours: Decimal, amount: Decimal) -> str:
    """By how much, unless more hours came to less money: what ran longer was cheaper then."""
    if hours * amount <= 0:
        return "more time for some machines and less for others"
    return f"{abs(hours * 60):.0f} machine-minutes {'more' if amount > 0 else 'fewer'}"


def day_of(day: date) -> datetime:
    """When it begins."""
    return datetime.combine(day, time(), UTC)
