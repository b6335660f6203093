"""Cost Management's query: what was metered, hours late as the real one is.

Of Azure's query language only what Rekindle asks is here: a period of its own, days or no
granularity, groupings, and a filter by one tag.
"""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import base_url, fabric_of, read_json, skip_token
from emulator.core.errors import ArmError, group_not_found
from emulator.core.state import group_id
from emulator.fabric import Fabric
from emulator.market import cost_limits
from emulator.market.cost_rows import (
    DAY,
    DIMENSIONS,
    MEASURES,
    DailyUsage,
    as_date,
    tag,
    total,
    usages,
)

PAGE = 1000
MOST_GROUPINGS = 2
Column = tuple[str, str, Callable[[DailyUsage], Any]]  # name, type, how to read it
GRANULARITIES: dict[str, list[Column]] = {
    "none": [],
    "daily": [("UsageDate", "Number", lambda usage: as_date(usage.day))],
}


async def query(request: Request) -> Response:
    """POST .../providers/Microsoft.CostManagement/query, of a subscription or a group."""
    fabric, body = fabric_of(request), await read_json(request)
    scope = _scope(fabric, request)
    if refusal := cost_limits.refuse(fabric, request.path_params["subscription"]):
        return refusal
    if str(body.get("type")) not in ("ActualCost", "AmortizedCost", "Usage"):
        raise bad("type must be ActualCost, AmortizedCost or Usage.")
    dataset = body.get("dataset")
    if not isinstance(dataset, dict):
        raise bad("Dataset is invalid or not supplied.")
    now = fabric.now()
    since, until = _period(body)
    until = min(until, now - fabric.settings.cost_delay_seconds)
    measures, keys = _measures(dataset), [*_granularity(dataset), *_groupings(dataset)]
    counts = _usage_filter(dataset.get("filter"))
    inside = (r for r in fabric.state.metered.values() if _within(scope, r.scale_set_id))
    rows = (usage for usage in usages(inside, since, until) if counts(usage))
    reads = [reader for _, _, reader in keys]
    lines = total(rows, reads, [MEASURES[name] for name in measures.values()])
    columns = [(name, "Number") for name in measures.values()]
    columns += [(name, kind) for name, kind, _ in keys] + [("Currency", "String")]
    return _answer(request, scope, columns, [[*line, "USD"] for line in lines])


def bad(why: str) -> ArmError:
    """Return 400 for an invalid query."""
    return ArmError(400, "BadRequest", f"Invalid query definition: {why}")


def _usage_filter(condition: Any) -> Callable[[DailyUsage], bool]:  # noqa: ANN401 - as it came
    """Which usage counts: all of it, or that with one of the values of a tag."""
    if condition is None:
        return lambda _usage: True
    inside = condition.get("tags") if isinstance(condition, dict) and len(condition) == 1 else None
    if not isinstance(inside, dict) or str(inside.get("operator")) != "In":
        raise bad("this emulator filters by tags, with a name, the operator In and values.")
    name, values = inside.get("name"), inside.get("values")
    if not name or not isinstance(values, list) or not values:
        raise bad("a comparison needs a name, an operator and values.")
    among = {str(value).lower() for value in values}
    return lambda usage: (tag(usage, str(name)) or "").lower() in among


def _dimension(name: object) -> Column:
    """Return the column of a dimension, or raise ArmError."""
    dimension = next((d for d in DIMENSIONS if d.lower() == str(name).lower()), None)
    if dimension is None:
        raise bad(f"Dimension '{name}' is not supported. Allowed: {','.join(DIMENSIONS)}.")
    return dimension, "String", DIMENSIONS[dimension]


def _period(body: dict[str, Any]) -> tuple[float, float]:
    """From when until when, in whole days; the last one counts in full."""
    period = body.get("timePeriod")
    if body.get("timeframe") != "Custom" or not isinstance(period, dict):
        raise bad("this emulator takes the timeframe Custom, with a timePeriod.")
    since, until = (_day(period.get(name), name) for name in ("from", "to"))
    if until < since:
        raise bad("the 'from' of timePeriod must not be after its 'to'.")
    return since, until + DAY


def _day(value: object, name: str) -> float:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise bad(f"the '{name}' of timePeriod is no time.") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.timestamp() // DAY * DAY


def _scope(fabric: Fabric, request: Request) -> str:
    names = request.path_params
    if "group" not in names:
        return f"/subscriptions/{names['subscription']}"
    scope = group_id(names["subscription"], names["group"])
    if scope.lower() not in fabric.state.groups:
        raise group_not_found(names["group"])
    return scope


def _within(scope: str, resource: str) -> bool:
    return resource.lower().startswith(f"{scope.lower()}/")


def _measures(dataset: dict[str, Any]) -> dict[str, str]:
    """Return the measure of each aggregation, or raise ArmError; all are sums."""
    aggregations = dataset.get("aggregation")
    if not isinstance(aggregations, dict) or not aggregations:
        raise bad("dataset.aggregation is missing; ask for the Sum of PreTaxCost.")
    measures = {}
    for alias, aggregation in aggregations.items():
        given_name = aggregation.get("name") if isinstance(aggregation, dict) else None
        name, function = str(given_name), aggregation.get("function") if given_name else None
        measure = next((m for m in MEASURES if m.lower() == name.lower()), None)
        if measure is None or function != "Sum":
            raise bad(f"the aggregation '{alias}' must be the Sum of {', '.join(MEASURES)}.")
        measures[alias] = measure
    return measures


def _granularity(dataset: dict[str, Any]) -> list[Column]:
    name = str(dataset.get("granularity") or "None")
    if name.lower() not in GRANULARITIES:
        raise bad("dataset.granularity must be Daily or None.")
    return GRANULARITIES[name.lower()]


def _groupings(dataset: dict[str, Any]) -> list[Column]:
    groupings = dataset.get("grouping") or []
    if not isinstance(groupings, list) or len(groupings) > MOST_GROUPINGS:
        raise bad(f"dataset.grouping must be a list of at most {MOST_GROUPINGS}.")
    columns: list[Column] = []
    for grouping in groupings:
        kind = str(grouping.get("type")) if isinstance(grouping, dict) else ""
        if kind in ("Tag", "TagKey") and grouping.get("name"):
            columns += _of_tag(str(grouping["name"]))
        elif kind == "Dimension":
            columns.append(_dimension(grouping.get("name")))
        else:
            raise bad("a grouping has a type, Dimension or TagKey, and a name.")
    return columns


def _of_tag(name: str) -> list[Column]:
    return [
        ("TagKey", "String", lambda _usage: name),
        ("TagValue", "String", lambda usage: tag(usage, name) or ""),
    ]


def _answer(
    request: Request, scope: str, columns: list[tuple[str, str]], rows: list[list[Any]]
) -> Response:
    skip = skip_token(request, "BadRequest")
    end = skip + PAGE
    link = None
    if end < len(rows):
        parameters = urlencode(dict(request.query_params) | {"$skiptoken": str(end)}, safe="$")
        link = f"{base_url(request)}{request.url.path}?{parameters}"
    name = str(uuid.uuid4())
    return JSONResponse(
        {
            "id": f"{scope.lstrip('/')}/providers/Microsoft.CostManagement/query/{name}",
            "name": name,
            "type": "Microsoft.CostManagement/query",
            "location": None,
            "sku": None,
            "eTag": None,
            "properties": {
                "nextLink": link,
                "columns": [{"name": name, "type": kind} for name, kind in columns],
                "rows": rows[skip:end],
            },
        }
    )
