"""Start of a contestant, and measurement of its processes from outside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import psutil

from bench.report import ROOT, CannotMeasure
from bench.trainer.case import RIVAL, TrainerCase

POLL = 0.02
ACCELERATOR = ("REKINDLE_ACCELERATOR", "DS_ACCELERATOR")  # variables of Rekindle and of DeepSpeed
TIMEOUT = 900.0  # timeout of one contestant, seconds
TAIL = 3000
STATUS = {"RssAnon:": "private", "RssFile:": "files", "RssShmem:": "shared"}
OF_GPU = "gpu"  # kind of memory: that of the fullest GPU, by its driver
# Prints a line for each GPU, ten times a second.
SMI = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=100")


@dataclass
class ContestantUsage:
    """Measurements of one contestant until its last step."""

    marks: dict[int, tuple[float, float]] = field(default_factory=dict)  # step: wall and CPU s
    cpu: dict[tuple[int, float], float] = field(default_factory=dict)  # CPU seconds by process
    peak: dict[str, int] = field(default_factory=dict)  # peak bytes of all ranks, by kind of memory
    mfu: float | None = None  # as Rekindle's trainer reports it; None otherwise

    def rate(self, tokens: Sequence[int], warmup: int) -> tuple[float, float]:
        """Return tokens per second and CPU seconds per 1,000 tokens, after ``warmup`` steps."""
        first, last = min(step for step in self.marks if step >= warmup), max(self.marks)
        (start, cpu), (end, cpu_end) = self.marks[first], self.marks[last]
        count = sum(tokens[first:last])
        return count / (end - start), 1000 * (cpu_end - cpu) / count


def prepare(folder: Path) -> None:
    """Write the inputs of the case in ``folder``."""
    command = [sys.executable, "-m", "bench.trainer.ranks.prepare", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=_environment("cpu")
    )
    if done.returncode:
        raise CannotMeasure(f"no inputs: {done.stderr[-TAIL:]}")


def watch(folder: Path, name: str, case: TrainerCase) -> ContestantUsage:
    """Train with this contestant and measure its processes."""
    root = folder / name
    root.mkdir(exist_ok=True)
    program = ("bench.trainer.ranks.hf", folder) if name == RIVAL else ("trainer.train", root)
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={case.ranks}"]
    command = [*torchrun, "--standalone", "-m", program[0], str(program[1])]
    environment = _environment(case.accelerator)
    with (root / "said.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        with _gpu_memory(root, case) as most:
            usage = _usage(psutil.Process(process.pid), root, case)
            usage.peak[OF_GPU] = most()
        usage.mfu = _mfu(root)
        return usage
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


def _usage(launcher: psutil.Process, root: Path, case: TrainerCase) -> ContestantUsage:
    usage, latest = ContestantUsage(), time.monotonic() + TIMEOUT
    while (step := _progress(root)) < case.steps:
        if not launcher.is_running() or launcher.status() == psutil.STATUS_ZOMBIE:
            raise CannotMeasure((root / "said.txt").read_text()[-TAIL:])
        if time.monotonic() > latest:
            raise CannotMeasure(f"{root.name} took longer than {TIMEOUT:.0f} s")
        _sample(usage, launcher, step)
        time.sleep(POLL)
    _sample(usage, launcher, step)
    return usage


def _sample(usage: ContestantUsage, launcher: psutil.Process, step: int) -> None:
    memory = dict.fromkeys(STATUS.values(), 0)
    for process in launcher.children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            times = process.cpu_times()
            usage.cpu[process.pid, process.create_time()] = times.user + times.system
            for kind, size in _pages(process.pid).items():
                memory[kind] += size
    memory["all"] = memory["private"] + memory["shared"]
    usage.marks.setdefault(step, (time.monotonic(), sum(usage.cpu.values())))
    usage.peak = {kind: max(size, usage.peak.get(kind, 0)) for kind, size in memory.items()}


def _pages(pid: int) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {STATUS[fields[0]]: int(fields[1]) * 1024 for fields in lines if fields[0] in STATUS}


@contextmanager
def _gpu_memory(root: Path, case: TrainerCase) -> Iterator[Callable[[], int]]:
    """Sample the memory of all GPUs; yield a function that returns the maximum in bytes."""
    if case.accelerator == "cpu":
        yield lambda: 0
        return
    if which(SMI[0]) is None:
        raise CannotMeasure("nvidia-smi is not installed: leave out --accelerator cuda")
    path = root / "gpu.txt"
    with path.open("w") as lines, subprocess.Popen(SMI, stdout=lines) as smi:
        try:
            yield lambda: max(map(int, path.read_text().split()), default=0) * 2**20
        finally:
            smi.kill()


def _mfu(root: Path) -> float | None:
    """Return the model FLOPs utilization of the last step; None where the trainer reported none."""
    path = root / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    mfu: float | None = json.loads(lines[-1]).get("mfu") if lines else None
    return mfu


def _progress(root: Path) -> int:
    path = root / "progress"
    text = path.read_text() if path.exists() else ""
    return int(text or 0)


def _environment(accelerator: str) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, **dict.fromkeys(ACCELERATOR, accelerator)}
