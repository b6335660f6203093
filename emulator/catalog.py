"""What is for sale: VM sizes, regions and prices, from `catalog.json`.

US list prices are Azure's; Spot prices are of the right size, no quotes. What no source tells
(ND in westus3, swedencentral, most Low Priority meters) is made up: nothing to plan with.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Size:
    """A VM size."""

    name: str
    short: str  # as meters are named
    product: str
    vcpus: int
    family: str


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One size in one region, in US dollars per hour."""

    size: Size
    location: str
    location_name: str
    on_demand: Decimal
    spot: Decimal
    low_priority: Decimal


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All sizes, regions and offers."""

    sizes: dict[str, Size]  # by name in lower case
    locations: frozenset[str]
    offers: tuple[Offer, ...]

    def size(self, name: str) -> Size | None:
        """Look a size up, in any case."""
        return self.sizes.get(name.lower())

    def offer(self, name: str, location: str) -> Offer | None:
        """The offer of a size in a region, or None where it is not sold."""
        wanted = (name.lower(), location.lower())
        return next((o for o in self.offers if (o.size.name.lower(), o.location) == wanted), None)


@cache
def catalog() -> Catalog:
    """Read the data file, once."""
    data = json.loads(files("emulator").joinpath("catalog.json").read_text())
    sizes = {n.lower(): Size(name=n, **members) for n, members in data["sizes"].items()}
    offers = tuple(_offer(row, sizes, data["locations"]) for row in data["prices"])
    return Catalog(sizes=sizes, locations=frozenset(data["locations"]), offers=offers)


def _offer(row: dict[str, Any], sizes: dict[str, Size], locations: dict[str, str]) -> Offer:
    return Offer(
        size=sizes[row["size"].lower()],
        location=row["location"],
        location_name=locations[row["location"]],
        on_demand=Decimal(row["on_demand"]),
        spot=Decimal(row["spot"]),
        low_priority=Decimal(row["low_priority"]),
    )
