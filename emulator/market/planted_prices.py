"""Rows that an admin adds to the price list: Azure's own list has rows that are no price.

A row is one of a size's, with members set otherwise or, by null, left out. Everything that Azure's
list was seen to hold can be planted: $0, dates in the future or in the past, other products,
numbers as text.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_order
from emulator.core.catalog import catalog
from emulator.core.errors import invalid
from emulator.core.market_rows import PlantedPrice
from emulator.fabric import Fabric

MEMBERS = ("vm_size", "region", "bought", "row", "alone")
BOUGHT = ("", " Spot", " Low Priority")


async def plant(request: Request) -> Response:
    """Add a row; ``alone``: in place of the size's own Linux rows of this kind there."""
    fabric, body = fabric_of(request), await read_order(request, *MEMBERS)
    offer = catalog().offer(str(body.get("vm_size", "")), str(body.get("region", "")))
    if offer is None:
        raise invalid("'vm_size' and 'region' must name a size and where it is sold.")
    bought, row, alone = body.get("bought", ""), body.get("row"), body.get("alone", False)
    if bought not in BOUGHT:
        raise invalid(f"'bought' must be one of {', '.join(map(repr, BOUGHT))}.")
    if not isinstance(row, dict) or not isinstance(alone, bool):
        raise invalid("'row' must be an object of a row's members, and 'alone' true or false.")
    number = len(fabric.state.planted_prices)
    fabric.state.put(PlantedPrice(number, offer.size.name, offer.location, bought, alone, row))
    fabric.changed()
    return _as_response(fabric)


async def list_all(request: Request) -> Response:
    """Every planted row."""
    return _as_response(fabric_of(request))


async def clear(request: Request) -> Response:
    """Take all of them back."""
    fabric = fabric_of(request)
    for planted in list(fabric.state.planted_prices.values()):
        fabric.state.remove(planted)
    fabric.changed()
    return _as_response(fabric)


def added(planted: PlantedPrice, own: dict[str, Any]) -> dict[str, Any]:
    """Return the size's ``own`` row with the planted members."""
    row = own | planted.row
    return {name: value for name, value in row.items() if value is not None}


def of(fabric: Fabric, size: str, location: str) -> Iterator[PlantedPrice]:
    """Those of a size in a region."""
    for planted in fabric.state.planted_prices.values():
        if (planted.size, planted.location) == (size, location):
            yield planted


def _as_response(fabric: Fabric) -> Response:
    rows = [asdict(planted) for planted in fabric.state.planted_prices.values()]
    return JSONResponse({"value": rows})
