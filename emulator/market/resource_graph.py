"""Resource Graph: POST /providers/Microsoft.ResourceGraph/resources."""

import base64
import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.enforcement import Caller
from emulator.errors import invalid
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, read_json
from emulator.market import kql
from emulator.market.kql_expressions import Row
from emulator.market.kql_tokens import QueryError
from emulator.market.resource_graph_tables import tables

MOST = 1000  # rows in one answer
ADVICE = (
    "Query is invalid. Please refer to the documentation for the Azure Resource Graph service and "
    "fix the error before retrying."
)


async def resources(request: Request) -> Response:
    """Run a query; rows as objects or as a table, at most 1,000 in one answer."""
    fabric, body = fabric_of(request), await read_json(request)
    try:
        rows = _run(fabric, request.scope["caller"], body)
    except QueryError as error:
        return _refused(error.details, fabric.now())
    except RecursionError:
        deep: dict[str, object] = {"code": "ParserFailure", "message": "The query is too deep."}
        return _refused(deep, fabric.now())
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise invalid("The value of parameter options is invalid.")
    top = _number(options, "$top", MOST, least=1)
    skip = _skip(options)
    part = rows[skip : skip + min(top, MOST)]
    end = skip + len(part)
    answer: dict[str, Any] = {
        "totalRecords": len(rows),
        "count": len(part),
        "resultTruncated": "false",
        "facets": [],
        "data": _table(part) if options.get("resultFormat") == "table" else part,
    }
    if end < len(rows):
        answer["$skipToken"] = base64.b64encode(str(end).encode()).decode()
    return JSONResponse(answer)


def _run(fabric: Fabric, caller: Caller, body: dict[str, Any]) -> list[Row]:
    query, subscriptions = body.get("query"), body.get("subscriptions") or []
    if not isinstance(query, str) or not query.strip():
        raise QueryError({"code": "EmptyQuery", "message": "Query cannot be empty."})
    if not isinstance(subscriptions, list):
        raise invalid("The value of parameter subscriptions is invalid.")
    return kql.read(query)(tables(fabric, caller, [str(name) for name in subscriptions]))


def _number(options: dict[str, Any], name: str, default: int, *, least: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid(f"The value of parameter options.{name} is invalid.")
    return value


def _skip(options: dict[str, Any]) -> int:
    token = options.get("$skipToken")
    if not token:
        return _number(options, "$skip", 0, least=0)
    try:
        return max(int(base64.b64decode(str(token), validate=True)), 0)
    except ValueError:
        raise invalid(f"The $skipToken '{token}' was not issued here.") from None


def _table(rows: list[Row]) -> dict[str, Any]:
    names = list(rows[0]) if rows else []
    columns = [{"name": name, "type": _type([row.get(name) for row in rows])} for name in names]
    return {"columns": columns, "rows": [[row.get(name) for name in names] for row in rows]}


def _type(values: list[Any]) -> str:
    first = next((value for value in values if value is not None), "")
    if isinstance(first, bool):
        return "boolean"
    if isinstance(first, int):
        return "integer"
    return {float: "number", str: "string"}.get(type(first), "object")


def _refused(details: dict[str, object], now: float) -> Response:
    """400 in the shape that Resource Graph has of its own."""
    when = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
    error = {
        "code": "BadRequest",
        "message": "Please provide below info when asking for support: "
        f"timestamp = {when}, correlationId = {uuid.uuid4()}.",
        "details": [{"code": "InvalidQuery", "message": ADVICE}, details],
    }
    return JSONResponse({"error": error}, status_code=400)
