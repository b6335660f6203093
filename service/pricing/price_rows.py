"""Find the price of a meter in rows of Azure's price list.

The list has future and past rows beside current ones, placeholders of $0, and several rows of one
meter. A field that the query fixed may be absent from a row.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from service.domain.money.price_check import ListedPrice

Row = dict[str, Any]
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def parse_price(rows: Iterable[Row], now: datetime, *, free: bool = False) -> ListedPrice:
    """Return the price of one meter from its newest row in force.

    With ``free`` a price of zero is valid.

    Rows of the primary meter go first; of two that began together the dearer one counts, so that
    a budget is not overspent.
    """
    rows = list(rows)
    in_force = [row for row in rows if is_in_force(row, now)]
    prices = [(row, amount(row)) for row in in_force]
    valid = [(r, p) for r, p in prices if p is not None and (p > 0 or (free and p == 0))]
    price, since, faults = _newest(valid)
    for row, bad in prices:
        if (row, bad) not in valid and (since is None or begins_at(row) >= since):
            faults.append(_fault(row, bad))  # an older one has been replaced
    if rows and not in_force:
        faults.append(f"None of its {len(rows)} rows is in force today")
    unreadable = any(bad is None for _, bad in prices)
    return ListedPrice(price=price, fault="; ".join(dict.fromkeys(faults)), unreadable=unreadable)


def amount(row: Row) -> Decimal | None:
    """Return the exact price of a row, or None if it is not a number."""
    return _number(row.get("retailPrice"))


def is_in_force(row: Row, now: datetime) -> bool:
    """Return whether the row's dates include ``now``; False without a start date."""
    try:
        begins = _moment(row["effectiveStartDate"])
        ends = row.get("effectiveEndDate")
        return begins <= now and (not ends or now <= _moment(ends))
    except (KeyError, TypeError, ValueError):
        return False


def is_first_tier(row: Row) -> bool:
    """Return whether the price holds from the first unit on, without a volume discount."""
    least = row.get("tierMinimumUnits")
    return least is None or _number(least) == 0


def is_consumption(row: Row) -> bool:
    """Return whether the row is pay-as-you-go in US dollars: no reservation, no Dev/Test offer."""
    used = has(row, "type", "Consumption") and not row.get("reservationTerm")
    return used and has(row, "currencyCode", "USD")


def has(row: Row, name: str, expected: str) -> bool:
    """Return whether the member equals ``expected`` (ignoring case) or is absent.

    The query's filter fixed the value of an absent member."""
    value = row.get(name)
    return value is None or text(row, name) == expected.casefold()


def text(row: Row, name: str) -> str:
    """Return a member of a row, case-folded for comparison; "" if absent."""
    return str(row.get(name) or "").strip().casefold()


def begins_at(row: Row) -> datetime:
    """Return since when a row in force holds."""
    return _moment(row["effectiveStartDate"])


def _newest(
    valid: Sequence[tuple[Row, Decimal]],
) -> tuple[Decimal | None, datetime | None, list[str]]:
    """Return the newest price, the start of its validity, and its faults."""
    primary = [pair for pair in valid if pair[0].get("isPrimaryMeterRegion") is not False] or valid
    if not primary:
        return None, None, []
    newest = max(begins_at(row) for row, _ in primary)
    prices = sorted({price for row, price in primary if begins_at(row) == newest})
    listing = " and ".join(f"${price}" for price in prices)
    faults = [f"Rows that began together have the prices {listing}"] if len(prices) > 1 else []
    return prices[-1], newest, faults


def _fault(row: Row, price: Decimal | None) -> str:
    if price is None:
        return f"A price is missing or no number: {row.get('retailPrice')!r:.60}"
    return f"A row in force has the price ${price}"


def _number(value: object) -> Decimal | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return Decimal(value)


def _moment(value: object) -> datetime:
    at = datetime.fromisoformat(str(value))
    return at if at.tzinfo else at.replace(tzinfo=UTC)
