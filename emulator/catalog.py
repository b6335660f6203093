"""What is for sale: VM sizes, regions and prices, from `catalog.json`.

US list prices are Azure's; Spot prices are of the right size, no quotes. Of reservations only
the two of ND96amsr in eastus are Azure's; of savings plans no figure is known, so there are none.
What no source tells is made up: the zones of a size, ND in westus3 and outside the US, most Low
Priority meters, product names of all but ND96amsr and NC24ads. Nothing to plan with.
"""

import json
from dataclasses import dataclass, field
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
    memory_gib: int
    gpus: int
    temp_gib: int
    rdma: bool
    os_disks: str = "ResourceDisk"  # placements of an ephemeral OS disk; the first is the usual one
    trusted_launch: bool = True


@dataclass(frozen=True, kw_only=True)
class Location:
    """A region."""

    name: str  # "eastus"
    display: str  # "East US"
    meter: str  # "US East", as the price list has it
    zones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One size in one region, in US dollars per hour."""

    size: Size
    location: str
    location_name: str
    on_demand: Decimal
    spot: Decimal
    low_priority: Decimal
    zones: tuple[str, ...] = ()
    reservations: dict[str, Decimal] = field(default_factory=dict)  # by term, for all of it


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All sizes, regions and offers."""

    sizes: dict[str, Size]  # by name in lower case
    regions: dict[str, Location]
    offers: tuple[Offer, ...]
    by_place: dict[tuple[str, str], Offer]  # by size and region in lower case

    @property
    def locations(self) -> frozenset[str]:
        """The names of all regions."""
        return frozenset(self.regions)

    def size(self, name: str) -> Size | None:
        """Look a size up, in any case."""
        return self.sizes.get(name.lower())

    def offer(self, name: str, location: str) -> Offer | None:
        """The offer of a size in a region, or None where it is not sold."""
        return self.by_place.get((name.lower(), location.lower()))


def region_name(text: object) -> str:
    """A region's name from any spelling: "East US" is "eastus"."""
    return str(text).lower().replace(" ", "")


@cache
def catalog() -> Catalog:
    """Read the data file, once."""
    data = json.loads(files("emulator").joinpath("catalog.json").read_text())
    sizes = {n.lower(): Size(name=n, **members) for n, members in data["sizes"].items()}
    regions = {n: _location(n, members) for n, members in data["locations"].items()}
    offers = tuple(_offer(row, sizes, regions) for row in data["prices"])
    by_place = {(o.size.name.lower(), o.location): o for o in offers}
    return Catalog(sizes=sizes, regions=regions, offers=offers, by_place=by_place)


def _location(name: str, members: dict[str, Any]) -> Location:
    zones = tuple(members["zones"])
    return Location(name=name, display=members["display"], meter=members["meter"], zones=zones)


def _offer(row: dict[str, Any], sizes: dict[str, Size], regions: dict[str, Location]) -> Offer:
    return Offer(
        size=sizes[row["size"].lower()],
        location=row["location"],
        location_name=regions[row["location"]].meter,
        on_demand=Decimal(row["on_demand"]),
        spot=Decimal(row["spot"]),
        low_priority=Decimal(row["low_priority"]),
        zones=tuple(row["zones"]),
        reservations={t: Decimal(p) for t, p in row.get("reservations", {}).items()},
    )
