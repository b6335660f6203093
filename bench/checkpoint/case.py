"""What one group of processes is told, and what each of its ranks tells back. JSON both ways."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

MIB, GIB = 2**20, 2**30
OURS, LIMIT = "rekindle", "raw_sink"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One contestant, one size, one number of ranks, one kind of wire."""

    contestant: str
    mib: int  # of fp32 masters and both moments, all ranks together
    ranks: int
    tls: bool
    url: str  # of the container, with a SAS
    folder: str  # on this machine, empty; all ranks see it
    saves: int = 2  # with nothing else going on; the best one counts
    steps: int = 20  # of the twin that never saves
    step_seconds: float = 0.05  # that a step waits, as for a GPU
    load_only: str = ""  # ours: a file with the entry of HEAD to load on this number of ranks

    def write(self, path: Path) -> None:
        """Leave it for the ranks."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Case":
        """What `write` left."""
        return Case(**json.loads(path.read_text()))


@dataclass(kw_only=True)
class RankResult:
    """What one rank measured; a list has one value for each save or load."""

    state_bytes: int = 0  # this rank's share
    blocked_s: list[float] = field(default_factory=list)  # until the loop could go on
    durable_s: list[float] = field(default_factory=list)  # until it was stored and committed
    save_cpu_s: list[float] = field(default_factory=list)  # helpers' too
    load_s: list[float] = field(default_factory=list)
    load_cpu_s: list[float] = field(default_factory=list)
    twin_s: list[float] = field(default_factory=list)  # each step of the twin
    loop_s: list[float] = field(default_factory=list)  # each step from the one with the save on
    loop_blocked_s: float = 0.0  # the part of the first one that was the call
    save_memory: int | None = None  # bytes at the highest, above what was there before
    load_memory: int | None = None
    same: bool = False  # what was loaded is what was saved

    def write(self, path: Path) -> None:
        """Leave it for who started the ranks."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "RankResult":
        """What `write` left."""
        return RankResult(**json.loads(path.read_text()))
