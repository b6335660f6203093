"""Traces of Spot capacity: JSON files `{"metadata": {"gap_seconds": g}, "data": [counts]}`."""

import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path


class BadTrace(Exception):
    """Raised for a file that cannot be replayed, with the reason and what to do."""


@dataclass(frozen=True, kw_only=True)
class TraceFolder:
    """Zones that were recorded at the same time."""

    name: str
    gap_s: float
    zones: tuple[str, ...]
    capacity: tuple[tuple[bool, ...], ...]  # by zone and tick: whether a request would be granted

    @property
    def ticks(self) -> int:
        """Number of ticks of the shortest zone."""
        return min(len(zone) for zone in self.capacity)


def read(root: Path, gang: int) -> list[TraceFolder]:
    """Read every folder of traces under ``root``; files with distinct gaps stay apart."""
    if not root.is_dir():
        raise BadTrace(f"{root} is no folder. Name one that holds traces as .json files.")
    traces = [(file, *_read(file)) for file in sorted(root.rglob("*.json"))]
    if not traces:
        raise BadTrace(f"There are no .json files under {root}. Name a folder that holds traces.")
    folders = []
    for (parent, gap), group in groupby(
        sorted(traces, key=lambda t: (t[0].parent, t[1], t[0])), lambda t: (t[0].parent, t[1])
    ):
        name = str(parent.relative_to(root)) if parent != root else root.name
        capacity = {f.stem: tuple(n >= gang for n in counts) for f, _, counts in group}
        folders.append(
            TraceFolder(
                name=name, gap_s=gap, zones=tuple(capacity), capacity=tuple(capacity.values())
            )
        )
    return folders


def _read(file: Path) -> tuple[float, list[float]]:
    try:
        document = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise BadTrace(f"{file} is no JSON ({error}). Move it out of the folder.") from error
    try:
        gap = float(document["metadata"]["gap_seconds"])
        counts = [float(n) for n in document["data"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadTrace(
            f'{file} is no trace: it needs {{"metadata": {{"gap_seconds": 300}}, '
            f'"data": [0, 4, ...]}} ({type(error).__name__}: {error}).'
        ) from error
    if gap <= 0 or not counts:
        raise BadTrace(f"{file} is no trace: gap_seconds must be above 0, and data not empty.")
    return gap, counts
