"""`/_emulator/weather`: see it, change it, take it back."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_value
from emulator.core.errors import invalid, refuse_unknown
from emulator.weather.skies import Sky
from emulator.weather.traces import at


async def post(request: Request) -> Response:
    """Set the weather from now on: one entry (see `skies.py`), a list, or {"value": list}."""
    fabric, body = fabric_of(request), await read_value(request)
    entries = body["value"] if isinstance(body, dict) and "value" in body else body
    entries = [entries] if isinstance(entries, dict) else entries
    if not isinstance(entries, list):
        raise invalid("The body must be a weather entry, or a list of them.")
    fresh = fabric.weather.post([_dated(entry, fabric.now()) for entry in entries])
    fabric.changed()
    return JSONResponse({"value": [_row(s, fabric.now()) for s in fresh]}, status_code=201)


async def get(request: Request) -> Response:
    """List the weather in force, the most exact first, with the present capacity."""
    fabric = fabric_of(request)
    rows = [_row(sky, fabric.now()) for sky in fabric.weather.skies]
    return JSONResponse({"value": rows})


async def delete(request: Request) -> Response:
    """Remove posted weather: all, or of ?region= and ?size=. That of --weather stays."""
    refuse_unknown(request.query_params, ("region", "size"), "parameter")
    fabric, query = fabric_of(request), request.query_params
    gone = fabric.weather.clear(query.get("region", ""), query.get("size", ""))
    fabric.changed()
    return JSONResponse({"cleared": gone})


def _dated(entry: Any, now: float) -> Any:  # noqa: ANN401 - as it came
    """Replace `"start": "now"` by the time."""
    dated = isinstance(entry, dict) and entry.get("start") == "now"
    return {**entry, "start": now} if dated else entry


def _row(sky: Sky, now: float) -> dict[str, Any]:
    """Return an entry of the weather without its recording, with the present capacity."""
    shown = {k: v for k, v in sky.entry.items() if k != "data"}
    there = at(sky.trace(sky.region, sky.size), now)
    return shown | {"capacity_now": there}
