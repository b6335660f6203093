"""Runs cases: ranks as processes of their own, against a sink, one case at a time."""

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
from bench.checkpoint.case import LIMIT, OURS, Case, RankResult
from bench.checkpoint.limits import Raw
from bench.checkpoint.measures import Row, row
from bench.checkpoint.sink import Sink
from bench.report import ROOT

DCP, DCP_DISK = "torch_dcp_adlfs", "torch_dcp_disk"
RIVALS = ("torch_save", DCP, "deepspeed")
PATIENCE = 300.0  # seconds for one case of up to a GiB
RAW_STREAMS = 4
RAW_MIB = 512
TAIL = 3000


class CannotMeasure(Exception):
    """A contestant failed; its last words."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What every case needs."""

    sink: Sink
    folder: Path
    packages: str  # a folder with what only rivals need


def contestants(packages: str) -> tuple[str, ...]:
    """All of them; DCP goes by the disk where no adlfs is."""
    places = [packages, *sys.path] if packages else sys.path
    straight = PathFinder.find_spec("adlfs", places) is not None
    rivals = [name if straight or name != DCP else DCP_DISK for name in RIVALS]
    return (OURS, *rivals, LIMIT)


def measure(tools: Tools, case: Case) -> Row:
    """One contestant's numbers, and that its bytes came from the sink and were the right ones."""
    with _folder(tools) as folder:
        return _measured(tools, replace(case, folder=str(folder)))


def measure_ours(tools: Tools, case: Case, other: int) -> tuple[Row, Row]:
    """Ours, and then the same checkpoint loaded on another number of ranks."""
    with _folder(tools) as folder, _folder(tools) as second:
        same = _measured(tools, replace(case, folder=str(folder)), keep=True)
        entry = max(folder.glob("committed-*.json"), key=lambda p: int(p.stem.split("-")[1]))
        again = replace(case, folder=str(second), ranks=other, load_only=str(entry))
        return same, _measured(tools, again)


def raw(tools: Tools, *, tls: bool) -> Raw:
    """What bare sockets can do."""
    return limits.raw(tools.sink, mib=RAW_MIB, streams=RAW_STREAMS, tls=tls)


def needed_gib(case: Case) -> float:
    """A cautious guess at the memory of a case, the sink's included.

    The state, a copy of it in each host, the sink's of two saves, and DeepSpeed's own: 16-bit
    weights and gradients on every rank, and the fp32 sums of gradients in shares.
    """
    gib = case.mib / 1024
    return gib * (1 + 1 + 2 + case.ranks / 3 + 1 / 3) + 0.7 * (case.ranks + 1)


def _measured(tools: Tools, case: Case, *, keep: bool = False) -> Row:
    before = tools.sink.stats()
    results = _ran(tools, case)
    after = tools.sink.stats()
    if not keep:
        tools.sink.forget()
    stored, fetched = (after[k] - before[k] for k in ("bytes_in", "bytes_out"))
    return row(case, results, stored=stored, fetched=fetched)


def _ran(tools: Tools, case: Case) -> list[RankResult]:
    folder = Path(case.folder)
    case.write(folder / "case.json")
    began, environment = time.monotonic(), _environment(tools, case)
    command = [sys.executable, "-m", "bench.checkpoint.ranks", str(folder / "case.json")]
    ranks = []
    try:
        for rank in range(case.ranks):
            with (folder / f"said-{rank}.txt").open("w") as log:
                own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                ranks.append(subprocess.Popen(command, env=own, cwd=ROOT, stdout=log, stderr=log))
        _wait(ranks, began + PATIENCE * max(case.mib / 1024, 1.0))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    found = [folder / f"result-{rank}.json" for rank in range(case.ranks)]
    if not all(path.exists() for path in found):
        raise CannotMeasure(f"{case.contestant}: {_last_words(folder)}")
    return [RankResult.read(path) for path in found]


def _wait(ranks: Sequence["subprocess.Popen[bytes]"], latest: float) -> None:
    """Until all have ended well, or one has not: the others would wait for it."""
    while any(process.poll() is None for process in ranks):
        if any(process.returncode for process in ranks) or time.monotonic() > latest:
            return
        time.sleep(0.05)


def _last_words(folder: Path) -> str:
    said = [path.read_text(errors="replace")[-TAIL:] for path in sorted(folder.glob("said-*"))]
    return next((text for text in said if "Error" in text), said[0] if said else "nothing")


def _environment(tools: Tools, case: Case) -> dict[str, str]:
    trusted = str(tools.sink.authority)
    places = [tools.packages] if tools.packages and case.contestant == DCP else []
    return {
        **os.environ,
        "WORLD_SIZE": str(case.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports.free()),
        "OMP_NUM_THREADS": "1",
        "REQUESTS_CA_BUNDLE": trusted,
        "SSL_CERT_FILE": trusted,
        "PYTHONPATH": os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


@contextmanager
def _folder(tools: Tools) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=tools.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
