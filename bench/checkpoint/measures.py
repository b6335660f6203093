"""Arithmetic of the benchmark: ranks' measurements to rows, and rows to measures with bars."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.checkpoint.case import GIB, LIMIT, REKINDLE, CheckpointCase, CheckpointTimes
from bench.checkpoint.limits import Raw
from bench.report import Measure, rounded

STALL_BAR = 1.0  # percent of the time, at the best interval
EVICTED_PER_HOUR = 0.075  # share of machines: middle of Azure's band 5 to 10 %


@dataclass(frozen=True, kw_only=True)
class ContestantRow:
    """One contestant in one case: the best time and the worst memory of all tries."""

    contestant: str
    mib: int
    ranks: int
    tls: bool
    stall_s: float | None  # None: training cannot go on meanwhile, or load only
    blocked_s: float | None
    save_s: float | None
    load_s: float
    save_cpu_s_per_gib: float | None
    load_cpu_s_per_gib: float
    save_memory_ratio: float | None  # bytes above the start, per byte of state
    load_memory_ratio: float | None
    stored_ratio: float | None  # bytes that the sink got per save and byte of state
    gib: float  # actual size of the state
    same: bool  # loaded bytes equal saved bytes

    @property
    def save_gib_s(self) -> float | None:
        """GiB of state per second, from the call until the save is stored and committed."""
        return None if self.save_s is None else self.gib / self.save_s

    @property
    def load_gib_s(self) -> float:
        """GiB of state per second, from the call until the state is in the engine's memory."""
        return self.gib / self.load_s


def row(
    case: CheckpointCase, ranks: Sequence[CheckpointTimes], *, stored: int, fetched: int
) -> ContestantRow:
    """Combine all ranks into a row: the slowest rank's time, the sum of CPU and memory.

    Args:
        case: The case that ran.
        ranks: One result for each rank.
        stored: Bytes that the sink received.
        fetched: Bytes that the sink sent.
    """
    size = sum(r.state_bytes for r in ranks)
    durable = _slowest([r.durable_s for r in ranks])
    saves = len(durable) + bool(ranks[0].loop_s)
    loads = len(ranks[0].load_s)
    return ContestantRow(
        contestant=case.contestant,
        mib=case.mib,
        ranks=case.ranks,
        tls=case.tls,
        stall_s=max(filter(None, map(_stall, ranks)), default=None),
        blocked_s=min(_slowest([r.blocked_s for r in ranks]), default=None),
        save_s=min(durable, default=None),
        load_s=min(_slowest([r.load_s for r in ranks])),
        save_cpu_s_per_gib=_per_gib(_sums([r.save_cpu_s for r in ranks]), size / GIB),
        load_cpu_s_per_gib=min(_sums([r.load_cpu_s for r in ranks])) / (size / GIB),
        save_memory_ratio=_ratio([r.save_memory for r in ranks], size),
        load_memory_ratio=_ratio([r.load_memory for r in ranks], size),
        stored_ratio=stored / saves / size if saves else None,
        gib=size / GIB,
        # A load that did not fetch every byte was served from somewhere else.
        same=all(r.same for r in ranks) and fetched >= loads * size,
    )


def interval(stall_s: float, save_s: float, evicted_per_hour: float = EVICTED_PER_HOUR) -> float:
    """Return the cheapest interval between saves in seconds, on one machine without notices.

    This is Young's formula: the square root of 2 * stall / eviction rate, but at least ``save_s``.

    >>> round(interval(0.0, 5.0)), round(interval(1.0, 5.0))
    (5, 304)
    """
    rate = -math.log(1 - evicted_per_hour) / 3600
    return max(save_s, math.sqrt(2 * stall_s / rate))


def stall_percent(row: ContestantRow) -> float | None:
    """Return the percentage of time that saves stall, at the best interval for this stall."""
    if row.stall_s is None or row.save_s is None:
        return None
    return 100 * row.stall_s / interval(row.stall_s, row.save_s)


def measures(
    rows: Sequence[ContestantRow], reshard: ContestantRow | None, raw: Raw
) -> list[Measure]:
    """Return the measures of one case: Rekindle's values, bars, limits, and the rivals' values."""
    by = {r.contestant: r for r in rows}
    ours, most = by[REKINDLE], by.get(LIMIT)
    rival_rows = [r for r in rows if r.contestant not in (REKINDLE, LIMIT)]

    def rivals(of: "Mapping[str, float | None]") -> dict[str, float | None]:
        return {r.contestant: rounded(of[r.contestant]) for r in rival_rows}

    def measure(
        name: str, unit: str, of: "Mapping[str, float | None]", **options: float
    ) -> Measure:
        value = rounded(of[REKINDLE])
        return Measure(name=name, value=value, unit=unit, rivals=rivals(of), **options)  # type: ignore[arg-type]  # numbers only

    def ratios(of: "Mapping[str, float | None]") -> dict[str, float | None]:
        best = of.get(LIMIT)
        return {name: v / best if v and best else None for name, v in of.items()}

    save, load = ({n: getattr(r, k) for n, r in by.items()} for k in ("save_gib_s", "load_gib_s"))
    cpu = {name: r.save_cpu_s_per_gib for name, r in by.items()}
    stall = {name: r.stall_s for name, r in by.items()}
    percent = {name: stall_percent(r) for name, r in by.items()}
    memory = {name: r.save_memory_ratio for name, r in by.items()}
    least = most.save_cpu_s_per_gib if most else None
    return [
        measure("stall_pct", "%", percent, bar=STALL_BAR, limit=0),
        measure("stall_s", "s", stall, limit=0),
        measure("save_ratio_to_limit", "of raw_sink", ratios(save), limit=1),
        measure("load_ratio_to_limit", "of raw_sink", ratios(load), limit=1),
        measure("save_ratio_to_sockets", "of sockets", _ratios_to(save, raw.save_gib_s), limit=1),
        measure("load_ratio_to_sockets", "of sockets", _ratios_to(load, raw.load_gib_s), limit=1),
        measure("cpu_s_per_gib", "s/GiB", cpu, **({"limit": round(least, 3)} if least else {})),
        measure("save_memory_ratio", "of state", memory, limit=0),
        Measure(name="emergency_s", value=rounded(ours.save_s), unit="s"),
        Measure(name="reshard_s", value=rounded(reshard.load_s) if reshard else None, unit="s"),
    ]


HEAD = (
    "contestant",
    *("GiB", "ranks", "wire", "blocked s", "stall s", "save GiB/s", "load GiB/s"),
    *("save cpu s/GiB", "load cpu s/GiB", "save mem", "load mem", "stored", "bytes"),
)


def cells(row: ContestantRow) -> tuple[object, ...]:
    """Return the cells of one table row, in the order of `HEAD`."""
    numbers = (
        *(row.blocked_s, row.stall_s, row.save_gib_s, row.load_gib_s),
        *(row.save_cpu_s_per_gib, row.load_cpu_s_per_gib),
        *(row.save_memory_ratio, row.load_memory_ratio, row.stored_ratio),
    )
    where = (round(row.gib, 3), row.ranks, "tls" if row.tls else "plain")
    same = "same" if row.same else "DIFFER"
    return (row.contestant, *where, *(rounded(n) for n in numbers), same)


def raw_cells(raw: Raw, *, tls: bool) -> tuple[object, ...]:
    """Return the table row of bare sockets."""
    where = ("-", "-", "tls" if tls else "plain", None, None)
    speeds = (rounded(raw.save_gib_s), rounded(raw.load_gib_s), rounded(raw.cpu_s_per_gib))
    return ("raw_sockets", *where, *speeds, *[None] * 4, "-")


def _stall(rank: CheckpointTimes) -> float | None:
    """Return the seconds that the loop with the save lost against the baseline loop.

    The result is at least the duration of the call, because a lower value can only be noise.
    """
    if not rank.loop_s or not rank.twin_s:
        return None
    baseline_step = sum(rank.twin_s) / len(rank.twin_s)
    return max(sum(rank.loop_s) - baseline_step * len(rank.loop_s), rank.loop_blocked_s)


def _slowest(by_rank: Sequence[Sequence[float]]) -> list[float]:
    return [max(tries) for tries in zip(*by_rank, strict=True)]


def _sums(by_rank: Sequence[Sequence[float]]) -> list[float]:
    return [sum(tries) for tries in zip(*by_rank, strict=True)]


def _per_gib(seconds: Sequence[float], gib: float) -> float | None:
    return min(seconds) / gib if seconds else None


def _ratio(above: Sequence[int | None], size: int) -> float | None:
    samples = [n for n in above if n is not None]
    return sum(samples) / size if len(samples) == len(above) else None


def _ratios_to(of: Mapping[str, float | None], best: float) -> dict[str, float | None]:
    return {name: v / best if v else None for name, v in of.items()}
