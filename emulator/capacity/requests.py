"""`/_emulator/spotCapacity`: see it, change it, take it back."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_value
from emulator.capacity.entries import CapacityEntry
from emulator.capacity.traces import at
from emulator.core.errors import invalid, refuse_unknown


async def post(request: Request) -> Response:
    """Set the capacity from now on: one entry (see `entries.py`), a list, or {"value": list}."""
    fabric, body = fabric_of(request), await read_value(request)
    entries = body["value"] if isinstance(body, dict) and "value" in body else body
    entries = [entries] if isinstance(entries, dict) else entries
    if not isinstance(entries, list):
        raise invalid("The body must be a capacity entry, or a list of them.")
    added = fabric.spot_capacity.post([_dated(entry, fabric.now()) for entry in entries])
    fabric.changed()
    return JSONResponse({"value": [_row(s, fabric.now()) for s in added]}, status_code=201)


async def get(request: Request) -> Response:
    """List the entries in force, the most exact first, with the present capacity."""
    fabric = fabric_of(request)
    rows = [_row(entry, fabric.now()) for entry in fabric.spot_capacity.entries]
    return JSONResponse({"value": rows})


async def delete(request: Request) -> Response:
    """Remove posted entries: all, or of ?region= and ?size=. That of --spot-capacity stays."""
    refuse_unknown(request.query_params, ("region", "size"), "parameter")
    fabric, query = fabric_of(request), request.query_params
    count = fabric.spot_capacity.clear(query.get("region", ""), query.get("size", ""))
    fabric.changed()
    return JSONResponse({"cleared": count})


def _dated(entry: Any, now: float) -> Any:  # noqa: ANN401 - as it came
    """Replace `"start": "now"` by the time."""
    dated = isinstance(entry, dict) and entry.get("start") == "now"
    return {**entry, "start": now} if dated else entry


def _row(entry: CapacityEntry, now: float) -> dict[str, Any]:
    """Return an entry without its recording, with the present capacity."""
    members = {k: v for k, v in entry.document.items() if k != "data"}
    capacity = at(entry.trace(entry.region, entry.size), now)
    return members | {"capacity_now": capacity}
