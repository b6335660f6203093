"""The meters: how long each instance was allocated, and at which price.

An hour costs what it cost when it began (or when the instance came in it). What is metered is
written with the change that it follows from, in one commit, so that no crash parts them.
"""

import math
import uuid
from collections.abc import Iterator
from dataclasses import replace

from emulator.capacity import SpotCapacity
from emulator.core.catalog import catalog
from emulator.core.market_rows import MeteredUsage
from emulator.core.rows import Path
from emulator.core.state import EmulatorState, InstanceRow, ScaleSetRow

HOUR = 3600.0


class Meters:
    """Follows the instances; `read` must be called before what changed is committed."""

    def __init__(self, state: EmulatorState, spot_capacity: SpotCapacity) -> None:
        self._state = state
        self._spot_capacity = spot_capacity
        self._changes = state.ledger.follow()
        self._running: dict[Path, str] = {}  # ids of records
        running = {r.vm_id: r for r in state.metered.values() if r.ended_at is None}
        for path, row in state.rows().items():
            if not isinstance(row, InstanceRow):
                continue
            if record := running.pop(row.vm_id, None):
                self._running[path] = record.id
            else:
                self._changes.touched[path] = None
        self._orphaned = list(running.values())
        self._read_until = min((r.prices[-1][0] for r in self._records()), default=None)

    def read(self, now: float) -> None:
        """Begin and end what began and ended since the last time; note new prices."""
        for record in self._orphaned:
            self._state.change(record, ended_at=now)
        self._orphaned = []
        self._follow_prices(now)
        touched = list(self._changes.touched)
        self._changes.clear()
        for path in touched:
            row = self._state.row_at(path)
            if len(path) > 2:
                self._update(path, row if isinstance(row, InstanceRow) else None, now)
            elif isinstance(row, ScaleSetRow):
                self._follow_tags(row)
        self._changes.clear()

    def _update(self, path: Path, instance: InstanceRow | None, now: float) -> None:
        record = self._running.get(path)
        is_allocated = bool(instance and instance.phase == "allocated")
        if record and not is_allocated:
            self._state.change(self._state.metered[self._running.pop(path)], ended_at=now)
        if instance and is_allocated and not record:
            self._running[path] = self._begin(instance, now)

    def _begin(self, instance: InstanceRow, now: float) -> str:
        scale_set = self._state.scale_sets[instance.set_key]
        record = MeteredUsage(
            id=uuid.uuid4().hex,
            vm_id=instance.vm_id,
            scale_set_id=_billed(scale_set),
            subscription=scale_set.subscription,
            group=_billed(scale_set).split("/")[4],
            location=scale_set.location,
            size=scale_set.vm_size,
            spot=scale_set.spot,
            tags=_tags(scale_set),
            began_at=now,
        )
        self._state.put(replace(record, prices=[[now, self._price(record, now)]]))
        return record.id

    def _records(self) -> list[MeteredUsage]:
        return [self._state.metered[id_] for id_ in self._running.values()]

    def _follow_prices(self, now: float) -> None:
        since = now if self._read_until is None else self._read_until
        for hour in range(math.floor(since / HOUR) + 1, math.floor(now / HOUR) + 1):
            prices: dict[tuple[str, str, bool], float] = {}
            for record in self._records():
                key = (record.location, record.size, record.spot)
                if key not in prices:
                    prices[key] = self._price(record, hour * HOUR)
                price = prices[key]
                if record.prices[-1][0] < hour * HOUR and record.prices[-1][1] != price:
                    self._state.change(record, prices=[*record.prices, [hour * HOUR, price]])
        self._read_until = now

    def _follow_tags(self, scale_set: ScaleSetRow) -> None:
        tags = _tags(scale_set)
        for instance in scale_set.instances.values():
            record = self._running.get(instance.row_path)
            if record and self._state.metered[record].tags != tags:
                self._state.change(self._state.metered[record], tags=tags)

    def _price(self, record: MeteredUsage, at: float) -> float:
        offer = catalog().offer(record.size, record.location)
        assert offer, f"{record.size} was checked when {record.scale_set_id} was put"
        if not record.spot:
            return float(offer.on_demand)
        return float(self._spot_capacity.spot_price(record.location, record.size, at) or offer.spot)


def slices(record: MeteredUsage, until: float) -> Iterator[tuple[float, float, float]]:
    """Iterate over the life of a record: start, end (unix seconds), US dollars per hour."""
    end = until if record.ended_at is None else min(record.ended_at, until)
    ends = [at for at, _ in record.prices[1:]] + [end]
    for (begin, price), last in zip(record.prices, ends, strict=True):
        if begin < min(last, end):
            yield begin, min(last, end), price


def _billed(scale_set: ScaleSetRow) -> str:
    """Return the id of the billed resource: the workspace for an Azure ML node.

    Cost Management tells clusters apart by their tags only (MicrosoftDocs/azure-docs issue 121393).
    """
    return "/".join(scale_set.owner.split("/")[:9]) if scale_set.owner else scale_set.id


def _tags(scale_set: ScaleSetRow) -> dict[str, str]:
    return {str(k): str(v) for k, v in (scale_set.model.get("tags") or {}).items()}
