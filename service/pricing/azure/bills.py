"""Query Cost Management for the actual cost of our scale sets by day, attempt and meter category.

A second query finds untagged resources of the resource group: a filter by tag leaves them out, and
grouped by that tag they have an empty value (null from some versions of the API).
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from service.domain.money.billing_reconciliation import UNTAGGED, BilledDay
from service.pricing.azure.arm import Arm
from service.pricing.market import MarketUnavailable

VERSION = "2025-03-01"
MAX_PAGES = 50
_AMOUNT, _QUANTITY, _DAY = "CostUSD", "UsageQuantity", "UsageDate"
_TAG, _CATEGORY = "TagValue", "MeterCategory"


class AzureBills:
    """Bills of one resource group. Takes over ``arm`` and closes it."""

    def __init__(self, arm: Arm, scope: str, *, tag: str, owner: tuple[str, str]) -> None:
        """Query the group at ``scope``; ``tag`` names attempts, ``owner`` is our tag."""
        self._arm = arm
        self._path = f"{scope}/providers/Microsoft.CostManagement/query"
        self._tag = tag
        self._owner = owner

    async def billed(self, since: date, until: date) -> list[BilledDay]:
        """Return the bills of tagged and of untagged resources, from two queries."""
        name, value = self._owner
        owner_filter = {"tags": {"name": name, "operator": "In", "values": [value]}}
        tagged = await self._pages(_query_body(since, until, self._tag, owner_filter))
        by_owner = await self._pages(_query_body(since, until, name))
        return tagged + [replace(b, attempt_id=UNTAGGED) for b in by_owner if not b.attempt_id]

    async def _pages(self, body: dict[str, Any]) -> list[BilledDay]:
        link = self._path
        days: list[BilledDay] = []
        for _ in range(MAX_PAGES):
            page = await self._arm.post(link, VERSION, body)
            properties = page.get("properties")
            if not isinstance(properties, dict):
                raise MarketUnavailable("Cost Management answered without properties.")
            days += _rows(properties)
            if not (link := properties.get("nextLink") or ""):
                return days
        raise MarketUnavailable("Cost Management's answer does not end.")

    async def close(self) -> None:
        """Close the connections."""
        await self._arm.close()


def _query_body(
    since: date, until: date, tag: str, only: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the body of a query by day, value of ``tag`` and meter; ``only``: its filter."""
    return {
        "type": "ActualCost",
        "timeframe": "Custom",
        "timePeriod": {"from": f"{since}T00:00:00Z", "to": f"{until}T23:59:59Z"},
        "dataset": {
            "granularity": "Daily",
            "aggregation": {
                "amount": {"name": _AMOUNT, "function": "Sum"},
                "quantity": {"name": _QUANTITY, "function": "Sum"},
            },
            "grouping": [
                {"type": "TagKey", "name": tag},
                {"type": "Dimension", "name": _CATEGORY},
            ],
        }
        | ({"filter": only} if only else {}),
    }


def _rows(properties: dict[str, Any]) -> Iterable[BilledDay]:
    """Return the rows of an answer, whose columns may come in any order."""
    try:
        names = [column["name"] for column in properties["columns"]]
        rows = [dict(zip(names, row, strict=True)) for row in properties["rows"]]
        return [
            BilledDay(
                day=datetime.strptime(str(row[_DAY]), "%Y%m%d").date(),  # noqa: DTZ007 - a day
                attempt_id=str(row[_TAG] or ""),
                category=str(row[_CATEGORY]),
                quantity=_finite(row[_QUANTITY]),
                amount=_finite(row[_AMOUNT]),
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise MarketUnavailable(f"Cost Management's rows cannot be read: {error!r}") from error


def _finite(value: object) -> Decimal:
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError(f"{value!r} is no number")
    return number
