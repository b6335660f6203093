"""Read an entry of a capacity file: a JSON object.

region, zone, size: where; region * is every region that has no entry of its own. Without a size
every size has the same kind of capacity, each its own machines.
priority: Spot (default), or Regular for on-demand, which has machines of its own.
kind: constant, random or trace.
capacity (constant): how many machines.
seed, total, orders_per_hour, order_size, order_hours (random): as `traces.Random` has them.
file, or data and gap_seconds (trace): {"metadata": {"gap_seconds": g}, "data": [n, ...]}.
start (trace): when the recording begins, RFC 3339 or unix seconds, else 1970. After its end it
begins anew. times (trace): machines for each one in the recording, 1.
without_notice: the share of evictions that no event announces, 0.1.
victims: whom an eviction takes, random (default) or newest.
partial: the share of allocations that, short of room, get what there is, 0.5; others get nothing.
"""

import json
import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from emulator.capacity.traces import Constant, MachinesOverTime, Random, Recorded
from emulator.core.errors import invalid

PLACE_MEMBERS = ("region", "zone", "size", "priority")
DEFAULTS = {"seed": 0, "without_notice": 0.1, "victims": "random", "partial": 0.5}
OF_KIND: dict[str, dict[str, Any]] = {
    "constant": {"capacity": 0},
    "random": {"total": 32, "orders_per_hour": 0.5, "order_size": 8.0, "order_hours": 4.0},
    "trace": {"file": None, "data": None, "gap_seconds": None, "start": 0, "times": 1},
}
INTEGERS = ("capacity", "total", "times")
SHARES = ("without_notice", "partial")
FOREVER = 1e11  # seconds since 1970
AMOUNTS = ("orders_per_hour", "order_size", "order_hours", "gap_seconds")


@dataclass(frozen=True)
class CapacityEntry:
    """The capacity of one pool; ``size`` and ``zone`` are empty where it is for any."""

    region: str
    zone: str
    size: str
    spot: bool
    document: dict[str, Any]  # as given, with the recording in it

    @property
    def pool_key(self) -> tuple[str, str, str, bool]:
        """The pool that it is for: a later entry for the same one replaces it."""
        return self.region, self.zone, self.size, self.spot

    def fits(self, region: str, zone: str, size: str, *, spot: bool) -> bool:
        """Whether it applies to that pool; all in lower case."""
        criteria = ((self.region, region), (self.zone, zone), (self.size, size))
        return self.spot is spot and all(own in ("", value) for own, value in criteria)

    def option(self, name: str) -> Any:  # noqa: ANN401 - as JSON has it
        """Return the entry's value for one of DEFAULTS, or the default."""
        return self.document.get(name, DEFAULTS[name])

    def trace(self, region: str, size: str) -> MachinesOverTime:
        """Return the capacity over time of one size in one region."""
        settings = OF_KIND[self.document["kind"]] | self.document
        if self.document["kind"] == "constant":
            return Constant(settings["capacity"])
        if self.document["kind"] == "random":
            return Random(
                seed=f"{self.option('seed')}/{region}/{self.zone}/{size}/{self.spot}",
                total=settings["total"],
                orders_per_hour=settings["orders_per_hour"],
                order_size=settings["order_size"],
                order_hours=settings["order_hours"],
            )
        counts = tuple(count * settings["times"] for count in settings["data"])
        return Recorded(counts, float(settings["gap_seconds"]), _moment(settings["start"]))


def read(file: Path) -> list[CapacityEntry]:
    """Read the entries of a capacity file, or raise ArmError."""
    try:
        entries = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise invalid(f"The capacity file {file} cannot be read: {error}") from error
    if not isinstance(entries, list):
        raise invalid(f"The capacity file {file} must be a JSON list of entries.")
    return [parse(entry, file.parent) for entry in entries]


def parse(entry: Any, folder: Path) -> CapacityEntry:  # noqa: ANN401 - as it came
    """Check an entry, and take in the file that it names; ArmError for what is none."""
    if not isinstance(entry, dict) or entry.get("kind") not in OF_KIND:
        raise invalid(f"The 'kind' of a capacity entry must be one of {', '.join(OF_KIND)}.")
    allowed = {*PLACE_MEMBERS, "kind", *DEFAULTS, *OF_KIND[entry["kind"]]}
    if unknown := sorted(set(entry) - allowed):
        members = ", ".join(sorted(allowed))
        raise invalid(f"A {entry['kind']} entry has no member {unknown[0]!r}; it has {members}.")
    region, zone, size = (_text(entry, name) for name in ("region", "zone", "size"))
    priority = _text(entry, "priority") or "spot"
    if not region or priority not in ("spot", "regular"):
        raise invalid(
            "A capacity entry needs a 'region' (or *); its 'priority' is Spot or Regular."
        )
    complete = _with_recording(entry, folder) if entry["kind"] == "trace" else dict(entry)
    for name, value in complete.items():
        _check(name, value)
    return CapacityEntry("" if region == "*" else region, zone, size, priority == "spot", complete)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name) or ""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise invalid(f"'{name}' of a capacity entry cannot be {value!r}.")
    text = str(value).lower()
    return text.replace(" ", "") if name == "region" else text


def _with_recording(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entry with the recording in it, so that it outlives the file."""
    if "file" not in entry:
        complete = dict(entry)
    else:
        file = folder / str(entry["file"])
        try:
            recording = json.loads(file.read_text())
            gap = recording["metadata"]["gap_seconds"]
            complete = {**entry, "data": recording["data"], "gap_seconds": gap}
        except (OSError, ValueError, KeyError, TypeError) as error:
            form = '{"metadata": {"gap_seconds": g}, "data": [n, ...]}'
            raise invalid(f"{file} cannot be read as {form}: {error!r}") from error
    data = complete.get("data")
    if not isinstance(data, list) or not data or not all(_count(n) for n in data):
        raise invalid("A trace needs a 'file', or counts of machines in 'data'.")
    gap = complete.get("gap_seconds")
    if not _number(gap) or gap < 1:  # type: ignore[operator] # a number, so
        raise invalid("A trace needs 'gap_seconds', from one count to the next; at least 1.")
    return complete


def _check(name: str, value: Any) -> None:  # noqa: ANN401 - as it came
    if name in INTEGERS and not _count(value):
        raise invalid(f"'{name}' of a capacity entry must be a number of machines, not {value!r}.")
    if name in SHARES and not (_number(value) and value <= 1):
        raise invalid(f"'{name}' of a capacity entry is a share, from 0 to 1, not {value!r}.")
    if name in AMOUNTS and not _number(value):
        raise invalid(f"'{name}' of a capacity entry must be a number, not {value!r}.")
    if name == "order_size" and value < 1:
        raise invalid("An order is of one machine or more: 'order_size' is at least 1.")
    if name == "order_hours" and not 0 < value <= 168:
        raise invalid("An order is for a time: 'order_hours' is more than 0, at most 168.")
    if name == "orders_per_hour" and value > 100:
        raise invalid("'orders_per_hour' is at most 100.")
    if name == "victims" and value not in ("random", "newest"):
        raise invalid("'victims' of a capacity entry are random or newest.")
    if name == "start":
        _moment(value)


def _moment(value: Any) -> float:  # noqa: ANN401 - as it came
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) < FOREVER:
        return float(value)
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise invalid(
            f"'start' of a capacity entry must be a time (2026-11-20T12:00:00Z), not {value!r}; "
            "now is for what is posted to /_emulator/spotCapacity."
        ) from error
    if moment.tzinfo is None:
        raise invalid(f"'start' of a capacity entry needs a time zone: {value!r}.")
    return moment.timestamp()


def _count(value: Any) -> bool:  # noqa: ANN401 - as it came
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:  # noqa: ANN401 - as it came
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
