"""Microsoft.Compute/virtualMachines: the instances of Flexible scale sets, listed."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from emulator.arm.front_door import fabric_of, page
from emulator.arm.views import expanded, virtual_machine_body
from emulator.compute.instances import unsupported_filter, virtual_machines

OF_SET = re.compile(r"'?virtualMachineScaleSet/id'?\s+eq\s+'([^']*)'", re.IGNORECASE)


async def list_all(request: Request) -> Response:
    """List those of a group or the subscription, narrowed to one scale set by $filter.

    With statusOnly=true only their instance views are shown.
    """
    set_key = _filtered_set(request.query_params.get("$filter", "").strip())
    status_only = request.query_params.get("statusOnly", "").lower() == "true"
    parts = (expanded(request) & {"instanceview"}) | ({"instanceview"} if status_only else set())
    rows = [
        virtual_machine_body(fabric_of(request), s, i, parts)
        for s, i in virtual_machines(request)
        if set_key in ("", s.key)
    ]
    return page(request, [_status_of(row) for row in rows] if status_only else rows)


def _filtered_set(text: str) -> str:
    """Return the key of the scale set that $filter names; empty for all scale sets."""
    match = OF_SET.fullmatch(text)
    if text and not match:
        raise unsupported_filter(text)
    return match[1].lower() if match else ""


def _status_of(row: dict[str, Any]) -> dict[str, Any]:
    properties = {"instanceView": row["properties"]["instanceView"]}
    return {k: row[k] for k in ("id", "name", "type", "location")} | {"properties": properties}
