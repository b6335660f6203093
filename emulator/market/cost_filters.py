"""The filter and the time of a Cost Management query."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from emulator.errors import ArmError
from emulator.market.cost_rows import DAY, DIMENSIONS, Usage, tag

Wanted = Callable[[Usage], bool]
DEEPEST = 20  # filters in filters


def bad(why: str) -> ArmError:
    """The query can never succeed as it stands."""
    return ArmError(400, "BadRequest", f"Invalid query definition: {why}")


def wanted(given: Any, depth: int = 0) -> Wanted:  # noqa: ANN401 - as it came
    """Which usage counts: `and`, `or` (two or more inside), `dimensions`, `tags`."""
    if given is None:
        return lambda _usage: True
    if not isinstance(given, dict) or len(given) != 1 or depth > DEEPEST:
        raise bad("a filter is one of and, or, dimensions, tags.")
    ((kind, inside),) = given.items()
    kind = str(kind).lower().removesuffix("s")
    if kind in ("and", "or"):
        if not isinstance(inside, list) or len(inside) < 2:
            raise bad(f"the filter '{kind}' needs two expressions or more.")
        parts = [wanted(part, depth + 1) for part in inside]
        every = all if kind == "and" else any
        return lambda usage: every(part(usage) for part in parts)
    if kind not in ("dimension", "tag") or not isinstance(inside, dict):
        raise bad("a filter is one of and, or, dimensions, tags.")
    return _comparison(kind, inside)


def dimension(name: Any) -> tuple[str, Callable[[Usage], str]]:  # noqa: ANN401 - as it came
    """A dimension as it is written, and how to read it."""
    found = next((d for d in DIMENSIONS if d.lower() == str(name).lower()), None)
    if found is None:
        raise bad(f"Dimension '{name}' is not supported. Allowed: {','.join(DIMENSIONS)}.")
    return found, DIMENSIONS[found]


def _comparison(kind: str, inside: dict[str, Any]) -> Wanted:
    name, values = inside.get("name"), inside.get("values")
    if not name or not isinstance(values, list) or not values:
        raise bad("a comparison needs a name, an operator and values.")
    if str(inside.get("operator")) != "In":
        raise bad("the operator of a comparison must be In.")
    among = {str(value).lower() for value in values}
    if kind == "tag":
        return lambda usage: (tag(usage, str(name)) or "").lower() in among
    read = dimension(name)[1]
    return lambda usage: read(usage).lower() in among


def period(body: dict[str, Any], now: float) -> tuple[float, float]:
    """From when until when, whole days, as `timeframe` says."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    last_month = (month - timedelta(days=1)).replace(day=1)
    end = today + timedelta(days=1)
    match str(body.get("timeframe")):
        case "Custom":
            return _custom(body.get("timePeriod"))
        case "MonthToDate" | "BillingMonthToDate" | "TheCurrentMonth":
            return month.timestamp(), end.timestamp()
        case "TheLastMonth" | "TheLastBillingMonth":
            return last_month.timestamp(), month.timestamp()
        case "WeekToDate":
            first = today - timedelta(days=(today.weekday() + 1) % 7)
            return first.timestamp(), end.timestamp()
        case other:
            raise bad(
                f"timeframe '{other}' is none of Custom, MonthToDate, BillingMonthToDate, "
                "TheLastMonth, TheLastBillingMonth, WeekToDate."
            )


def _custom(given: Any) -> tuple[float, float]:  # noqa: ANN401 - as it came
    if not isinstance(given, dict):
        raise bad("timePeriod is missing.")
    since, until = (_day(given.get(name), name) for name in ("from", "to"))
    if until < since:
        raise bad("the 'from' of timePeriod must not be after its 'to'.")
    return since, until + DAY  # the last day counts in full


def _day(given: Any, name: str) -> float:  # noqa: ANN401 - as it came
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise bad(f"the '{name}' of timePeriod is no time.") from None
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return aware.timestamp() // DAY * DAY
