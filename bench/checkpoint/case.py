"""Files between the benchmark and its ranks, in JSON: the case to run, and each rank's result."""

from dataclasses import dataclass, field

from bench.report import JsonFile

MIB, GIB = 2**20, 2**30
REKINDLE, LIMIT = "rekindle", "raw_sink"


@dataclass(frozen=True, kw_only=True)
class CheckpointCase(JsonFile):
    """One contestant, state size, number of ranks and kind of connection."""

    contestant: str
    mib: int  # size of master weights and moments, summed over ranks
    ranks: int
    tls: bool
    url: str  # URL of the container, with a SAS
    folder: str  # empty folder on this machine, shared by all ranks
    saves: int = 2  # saves without training; the best one counts
    steps: int = 20  # steps of the baseline loop that never saves
    step_seconds: float = 0.05  # sleep of a step, in place of GPU work
    load_only: str = ""  # rekindle only: file with HEAD's entry to load


@dataclass(kw_only=True)
class CheckpointTimes(JsonFile):
    """Measurements of one rank; a list has one value for each save, load or step."""

    state_bytes: int = 0  # bytes of this rank's partition
    blocked_s: list[float] = field(default_factory=list)  # until training can go on
    durable_s: list[float] = field(default_factory=list)  # until stored and committed
    save_cpu_s: list[float] = field(default_factory=list)  # with helper processes
    load_s: list[float] = field(default_factory=list)
    load_cpu_s: list[float] = field(default_factory=list)
    twin_s: list[float] = field(default_factory=list)  # each step of the baseline
    loop_s: list[float] = field(default_factory=list)  # each step, from the one that saves on
    loop_blocked_s: float = 0.0  # part of the first step: the save call
    save_memory: int | None = None  # peak bytes above those at the start
    load_memory: int | None = None
    same: bool = False  # loaded bytes equal saved bytes
