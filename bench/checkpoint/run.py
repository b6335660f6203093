"""Runner of cases: starts the ranks as processes against a sink, one case at a time."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from bench import ports
from bench.checkpoint import limits
from bench.checkpoint.case import LIMIT, REKINDLE, CheckpointCase, CheckpointTimes
from bench.checkpoint.limits import Raw
from bench.checkpoint.measures import ContestantRow, row
from bench.checkpoint.sink import Sink
from bench.report import ROOT, CannotMeasure

DCP, DCP_DISK = "torch_dcp_adlfs", "torch_dcp_disk"
RIVALS = ("torch_save", DCP, "deepspeed")
TIMEOUT = 300.0  # seconds for one case of up to a GiB
RAW_STREAMS = 4
RAW_MIB = 512
TAIL = 3000


@dataclass(frozen=True, kw_only=True)
class CheckpointTools:
    """Sink, scratch folder and extra packages that every case uses."""

    sink: Sink
    folder: Path
    packages: str  # folder with packages that only rivals import


def contestants(packages: str) -> tuple[str, ...]:
    """Return the names of all contestants; DCP goes via the disk where adlfs is not installed."""
    search_path = [packages, *sys.path] if packages else sys.path
    straight = PathFinder.find_spec("adlfs", search_path) is not None
    rivals = [name if straight or name != DCP else DCP_DISK for name in RIVALS]
    return (REKINDLE, *rivals, LIMIT)


def measure(tools: CheckpointTools, case: CheckpointCase) -> ContestantRow:
    """Measure one contestant, and check that its bytes are right and came from the sink."""
    with _folder(tools) as folder:
        return _measure_case(tools, replace(case, folder=str(folder)))


def measure_rekindle(
    tools: CheckpointTools, case: CheckpointCase, ranks: int
) -> tuple[ContestantRow, ContestantRow]:
    """Measure Rekindle, and then a load of the same checkpoint on ``ranks`` ranks."""
    with _folder(tools) as folder, _folder(tools) as second:
        same = _measure_case(tools, replace(case, folder=str(folder)), keep=True)
        entry = max(folder.glob("committed-*.json"), key=lambda p: int(p.stem.split("-")[1]))
        reshard_case = replace(case, folder=str(second), ranks=ranks, load_only=str(entry))
        return same, _measure_case(tools, reshard_case)


def raw(tools: CheckpointTools, *, tls: bool) -> Raw:
    """Measure the throughput of bare sockets."""
    return limits.raw(tools.sink, mib=RAW_MIB, streams=RAW_STREAMS, tls=tls)


def needed_gib(case: CheckpointCase) -> float:
    """Estimate an upper bound of a case's memory in GiB, with the sink.

    It sums the state, a copy of it in host memory, the sink's copies of two saves, and DeepSpeed's
    own memory: 16-bit weights and gradients on every rank, and partitioned fp32 gradient sums.
    """
    gib = case.mib / 1024
    return gib * (1 + 1 + 2 + case.ranks / 3 + 1 / 3) + 0.7 * (case.ranks + 1)


def _measure_case(
    tools: CheckpointTools, case: CheckpointCase, *, keep: bool = False
) -> ContestantRow:
    before = tools.sink.stats()
    results = _run_ranks(tools, case)
    after = tools.sink.stats()
    if not keep:
        tools.sink.reset()
    stored, fetched = (after[k] - before[k] for k in ("bytes_in", "bytes_out"))
    return row(case, results, stored=stored, fetched=fetched)


def _run_ranks(tools: CheckpointTools, case: CheckpointCase) -> list[CheckpointTimes]:
    folder = Path(case.folder)
    case.write(folder / "case.json")
    start, environment = time.monotonic(), _environment(tools, case)
    command = [sys.executable, "-m", "bench.checkpoint.ranks", str(folder / "case.json")]
    ranks = []
    try:
        for rank in range(case.ranks):
            with (folder / f"said-{rank}.txt").open("w") as log:
                own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                ranks.append(subprocess.Popen(command, env=own, cwd=ROOT, stdout=log, stderr=log))
        _wait(ranks, start + TIMEOUT * max(case.mib / 1024, 1.0))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    result_paths = [folder / f"result-{rank}.json" for rank in range(case.ranks)]
    if not all(path.exists() for path in result_paths):
        raise CannotMeasure(f"{case.contestant}: {_error_tail(folder)}")
    return [CheckpointTimes.read(path) for path in result_paths]


def _wait(ranks: Sequence["subprocess.Popen[bytes]"], latest: float) -> None:
    """Wait until all ranks succeeded, or one failed or ran out of time."""
    while any(process.poll() is None for process in ranks):
        if any(process.returncode for process in ranks) or time.monotonic() > latest:
            return
        time.sleep(0.05)


def _error_tail(folder: Path) -> str:
    logs = [path.read_text(errors="replace")[-TAIL:] for path in sorted(folder.glob("said-*"))]
    return next((text for text in logs if "Error" in text), logs[0] if logs else "nothing")


def _environment(tools: CheckpointTools, case: CheckpointCase) -> dict[str, str]:
    trusted = str(tools.sink.authority)
    packages = [tools.packages] if tools.packages and case.contestant == DCP else []
    return {
        **os.environ,
        "WORLD_SIZE": str(case.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports.free()),
        "OMP_NUM_THREADS": "1",
        "REQUESTS_CA_BUNDLE": trusted,
        "SSL_CERT_FILE": trusted,
        "PYTHONPATH": os.pathsep.join([*packages, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


@contextmanager
def _folder(tools: CheckpointTools) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=tools.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
