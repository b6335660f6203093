"""The capacity in force, and the answers that need no state of any VM: all functions of time.

`--spot-capacity FILE` gives a base at each start. What is posted to `/_emulator/spotCapacity`
overrides it, in a file of its own beside the state: recordings are long, and change with nothing
else. Without an entry, capacity is unlimited and the price is that of the catalog.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from emulator.capacity import scarcity
from emulator.capacity.entries import CapacityEntry, parse, read
from emulator.capacity.traces import MachinesOverTime, at, lowest
from emulator.core.catalog import catalog
from emulator.core.state import InstanceRow, ScaleSetRow

PoolKey = tuple[str, str, str, bool]  # region, zone, size, whether it is for Spot


@dataclass(frozen=True)
class CapacityPool:
    """The machines that the instances of one pool share."""

    key: PoolKey
    entry: CapacityEntry
    trace: MachinesOverTime

    def now(self, now: float) -> int:
        """Return the present capacity."""
        return at(self.trace, now)

    def lowest(self, since: float, until: float) -> int:
        """Return the lowest capacity in a span of time."""
        return lowest(self.trace, since, until)


class SpotCapacity:
    """All entries, and which of them applies to a pool."""

    def __init__(self, file: Path, base: Path | None = None, *, foresight: float = 31.0) -> None:
        self.foresight = foresight  # seconds: the notice that Azure gives, and one look more
        self._file = file
        self._base = read(base) if base else []
        self._posted = read(file) if file.exists() else []
        self._arrange()

    @property
    def entries(self) -> list[CapacityEntry]:
        """Every one in force, the most exact first."""
        return self._entries

    def post(self, entries: list[Any]) -> list[CapacityEntry]:
        """Set the capacity of these pools from now on, or raise ArmError."""
        added = [parse(entry, Path.cwd()) for entry in entries]
        self._posted = _override(self._posted, added)
        self._write()
        return added

    def clear(self, region: str = "", size: str = "") -> int:
        """Take back what was posted, all of it or that of a region or size; the base stays."""
        remaining = [
            entry
            for entry in self._posted
            if region.lower() not in ("", entry.region) or size.lower() not in ("", entry.size)
        ]
        removed = len(self._posted) - len(remaining)
        self._posted = remaining
        self._write()
        return removed

    def pool(self, scale_set: ScaleSetRow, instance: InstanceRow) -> CapacityPool | None:
        """Return the pool that an instance takes its machine from; None where it is unlimited."""
        zones = scale_set.model.get("zones") or []
        zone = instance.zone or (str(zones[0]) if len(zones) == 1 else "")
        spot = scale_set.spot
        return self.pool_at(scale_set.location, zone, scale_set.vm_size, spot=spot)

    def pool_at(
        self, region: str, zone: str, size: str, *, spot: bool = True
    ) -> CapacityPool | None:
        """Return the pool of a size in a region. Without a zone, entries for zones do not count."""
        key = region.lower(), zone, size.lower(), spot
        if key not in self._pools:
            self._pools[key] = self._find(*key)
        return self._pools[key]

    def spot_price(self, region: str, size: str, now: float) -> Decimal | None:
        """US dollars per hour; None where the size is not sold. Scarcity raises it, day by day."""
        offer = catalog().offer(size, region)
        return scarcity.price(offer, self._traces(region, size), now) if offer else None

    def price_history(self, region: str, size: str, now: float) -> list[tuple[float, Decimal]]:
        """Return each price of the last 90 days with its beginning, newest first."""
        offer = catalog().offer(size, region)
        return scarcity.history(offer, self._traces(region, size), now) if offer else []

    def eviction_band(self, region: str, size: str, now: float) -> str:
        """Evictions per machine and hour over the last 28 days, in percent: 0-5 ... 20+."""
        return scarcity.band(self._traces(region, size), now)

    def _traces(self, region: str, size: str) -> list[MachinesOverTime]:
        """Return the trace of the region if it has one, else those of its zones."""
        region, size = region.lower(), size.lower()
        if pool := self.pool_at(region, "", size):
            return [pool.trace]
        zones = {
            entry.zone for entry in self._entries if entry.fits(region, entry.zone, size, spot=True)
        }
        pools = [self.pool_at(region, zone, size) for zone in sorted(zones)]
        return [pool.trace for pool in pools if pool]

    def _find(self, region: str, zone: str, size: str, spot: bool) -> CapacityPool | None:
        for entry in self._entries:
            if entry.fits(region, zone, size, spot=spot):
                key = (region, entry.zone, size, spot)
                return CapacityPool(key, entry, entry.trace(region, size))
        return None

    def _write(self) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps([entry.document for entry in self._posted]))
        temporary.replace(self._file)
        self._arrange()

    def _arrange(self) -> None:
        self._pools: dict[PoolKey, CapacityPool | None] = {}
        everything = _override(self._base, self._posted)
        self._entries = sorted(
            everything, key=lambda s: (bool(s.region), bool(s.zone), bool(s.size)), reverse=True
        )


def _override(
    lower: Iterable[CapacityEntry], upper: Iterable[CapacityEntry]
) -> list[CapacityEntry]:
    return list(({s.pool_key: s for s in lower} | {s.pool_key: s for s in upper}).values())
