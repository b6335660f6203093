"""Output of all benchmarks: measures with their bars, as a table for people and as JSON."""

import argparse
import asyncio
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[1]
STDOUT = Path("-")
CANNOT_MEASURE, INTERRUPTED = 2, 130  # exit statuses
Number = float | int | None
T = TypeVar("T")


class CannotMeasure(Exception):
    """Raised when a benchmark could not be set up, or what it measures has failed."""


def print_progress(line: str) -> None:
    """Print a line for people."""
    print(line, file=sys.stderr, flush=True)


def option_parser(bench: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options, which all have `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{bench}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "File for the JSON; without FILE it is the last line of standard output."
    parser.add_argument("--json", type=Path, nargs="?", const=STDOUT, metavar="FILE", help=text)
    return parser


def publish(bench: str, measures: "Sequence[Measure]", to: Path | None, **details: Any) -> None:  # noqa: ANN401 - JSON
    """Print the measures as a table, and write the JSON if ``to`` is given."""
    print_measures(measures)
    if to:
        document = Report(bench=bench, measures=measures, more=details)
        document.write(None if to == STDOUT else to)


def run_to_exit(work: Coroutine[Any, Any, T], *faults: type[Exception]) -> T:
    """Run the work; exit with the status of a measurement that failed or was interrupted."""
    expected: tuple[type[Exception], ...] = (CannotMeasure, *faults)
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except expected as error:
        print_progress(f"cannot measure: {type(error).__name__}: {error}")
        sys.exit(CANNOT_MEASURE)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One figure with its bar (required value), limit (best possible value) and rivals."""

    name: str
    value: Number  # None: it could not be measured
    unit: str
    bar: Number = None  # None: the figure has no bar
    limit: Number = None
    rivals: Mapping[str, Number] = field(default_factory=dict)
    higher_is_better: bool = False

    @property
    def passes(self) -> bool:
        """Whether the figure meets its bar; a figure without a value or a bar passes."""
        if self.bar is None or self.value is None:
            return True
        return self.value >= self.bar if self.higher_is_better else self.value <= self.bar

    def to_plain(self) -> dict[str, Any]:
        """Return the measure as a JSON object."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bar": self.bar,
            "limit": self.limit,
            "rivals": dict(self.rivals),
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """Result of one benchmark; ``more`` holds additional members of the JSON."""

    bench: str
    measures: Sequence[Measure]
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        document = {
            "bench": self.bench,
            "commit": commit(),
            "machine": machine(),
            "measures": [m.to_plain() for m in self.measures],
            **self.more,
        }
        return json.dumps(document)

    def write(self, to: Path | None) -> None:
        """Write the JSON to a file, or print it as the last line of standard output."""
        if to is None:
            print(self.to_json(), flush=True)
        else:
            to.write_text(self.to_json() + "\n")


class JsonFile:
    """A dataclass that one process of a benchmark writes to a file and another one reads."""

    def write(self, path: Path) -> None:
        """Write the members to a file."""
        path.write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        return cls(**json.loads(path.read_text()))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the nearest-rank percentile, or None when there are no values.

    The result is always one of the values.

    >>> percentile([4, 1, 3, 2], 50), percentile([1, 2, 3], 99), percentile([], 50)
    (2, 3, None)
    """
    if not values:
        return None
    rank = max(math.ceil(percent / 100 * len(values)), 1)
    return sorted(values)[rank - 1]


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Round a value to ``digits`` decimals; None stays None."""
    return None if value is None else round(value, digits)


def machine() -> dict[str, Any]:
    """Describe the machine of the measurement: CPU, memory, system and current load."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_1m": round(psutil.getloadavg()[0], 2),
    }


def commit() -> str:
    """Return the measured commit, with the suffix "-dirty" when files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], to: TextIO = sys.stderr) -> None:
    """Print a table with aligned columns; all but the first are right-aligned."""
    cells = [list(head), *([_cell_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        line = [
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(line).rstrip(), file=to)
    print(file=to, flush=True)


def print_measures(measures: Sequence[Measure], to: TextIO = sys.stderr) -> None:
    """Print the measures as a table."""
    head = ("measure", "value", "unit", "bar", "limit", "", "rivals")
    rows = [
        (m.name, m.value, m.unit, m.bar, m.limit, "" if m.passes else "FAILS", _rivals(m))
        for m in measures
    ]
    table(head, rows, to)


def _rivals(measure: Measure) -> str:
    return ", ".join(f"{name} {_cell_text(value)}" for name, value in measure.rivals.items())


def _cell_text(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
