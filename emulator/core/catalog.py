"""What is for sale: VM sizes, regions and prices, from `catalog.json` and `everywhere.json`.

The first says which size is sold where. Those of the second, with a price of their own, are sold in
every region; with it all public regions are there. `--catalog FILE` adds to the first, in its form.

US list prices are Azure's; Spot prices are of the right size, no quotes. Of reservations only
the two of ND96amsr in eastus are Azure's; of savings plans no figure is known, so there are none.
What no source tells is made up: the zones of a size, ND in westus3 and outside the US, most Low
Priority meters, product names of all but ND96amsr and NC24ads, the prices of `everywhere.json`
outside of eastus and their discounts. Nothing to plan with.
"""

import json
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from emulator.core.errors import invalid


@dataclass(frozen=True, kw_only=True)
class VmSize:
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
class SizeOffer:
    """One size in one region, in US dollars per hour."""

    size: VmSize
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

    sizes: dict[str, VmSize]  # by name in lower case
    regions: dict[str, Location]
    offers: tuple[SizeOffer, ...]
    by_place: dict[tuple[str, str], SizeOffer]  # by size and region in lower case

    @property
    def locations(self) -> frozenset[str]:
        """The names of all regions."""
        return frozenset(self.regions)

    def size(self, name: str) -> VmSize | None:
        """Look a size up, in any case."""
        return self.sizes.get(name.lower())

    def offer(self, name: str, location: str) -> SizeOffer | None:
        """Return the offer of a size in a region, or None if it is not sold there."""
        return self.by_place.get((name.lower(), location.lower()))


def check_location(value: object, type_: str) -> str:
    """Return the name of a region, or raise ArmError for none or an unknown one."""
    if not value:
        raise invalid("The location property is required for this definition.", "LocationRequired")
    name, locations = region_name(value), catalog().locations
    if name not in locations:
        raise invalid(
            f"The provided location '{name}' is not available for resource type '{type_}'. List "
            f"of available regions for the resource type is '{','.join(sorted(locations))}'.",
            "LocationNotAvailableForResourceType",
        )
    return name


OWN = ("catalog.json", "everywhere.json")


def region_name(text: object) -> str:
    """Return a region's name from any spelling: "East US" is "eastus"."""
    return str(text).lower().replace(" ", "")


@cache
def catalog() -> Catalog:
    """Read the data files, once."""
    return read()


def read(*extra_files: Path) -> Catalog:
    """Read the catalog and more files; raise ValueError, KeyError or TypeError if malformed."""
    own, common = (json.loads(files("emulator.core").joinpath(n).read_text()) for n in OWN)
    added = [json.loads(file.read_text()) for file in extra_files]
    prices = {s: members.pop("on_demand") for s, members in common["sizes"].items()}
    merged: dict[str, dict[str, Any]] = {"sizes": {}, "locations": {}}
    for data, kind in product((common, own, *added), merged):
        merged[kind] |= data.get(kind, {})
    sizes = {n.lower(): VmSize(name=n, **members) for n, members in merged["sizes"].items()}
    regions = {n: _location(n, members) for n, members in merged["locations"].items()}
    rows = [row for data in (*added, own) for row in data.get("prices", [])]
    rows += [
        _common(size, region, prices[size]) for size, region in product(prices, regions.values())
    ]
    by_place: dict[tuple[str, str], SizeOffer] = {}
    for offer in (_offer(row, sizes, regions) for row in rows):
        by_place.setdefault((offer.size.name.lower(), offer.location), offer)
    offers = tuple(by_place.values())
    return Catalog(sizes=sizes, regions=regions, offers=offers, by_place=by_place)


def add(file: Path) -> None:
    """Sell from now on what the file adds, too."""
    extended, current = read(file), catalog()
    for name, value in vars(extended).items():
        object.__setattr__(current, name, value)


def _common(size: str, location: Location, price: str) -> dict[str, Any]:
    """Return the row of a size that every region sells; Spot and Low Priority cost a fifth."""
    fifth = str(Decimal(price) / 5)
    members = {"size": size, "location": location.name, "zones": location.zones}
    return members | {"on_demand": price, "spot": fifth, "low_priority": fifth}


def _location(name: str, members: dict[str, Any]) -> Location:
    zones = tuple(members["zones"])
    return Location(name=name, display=members["display"], meter=members["meter"], zones=zones)


def _offer(
    row: dict[str, Any], sizes: dict[str, VmSize], regions: dict[str, Location]
) -> SizeOffer:
    return SizeOffer(
        size=sizes[row["size"].lower()],
        location=row["location"],
        location_name=regions[row["location"]].meter,
        on_demand=Decimal(row["on_demand"]),
        spot=Decimal(row["spot"]),
        low_priority=Decimal(row["low_priority"]),
        zones=tuple(row["zones"]),
        reservations={t: Decimal(p) for t, p in row.get("reservations", {}).items()},
    )
