"""One rank of one case: `python -m bench.checkpoint.ranks CASE.json`, with torchrun's variables.

It saves without training, runs a baseline loop that never saves, runs the same loop with one
save, and loads that save into zeroed state.
"""

import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.checkpoint.case import CheckpointCase, CheckpointTimes
from bench.checkpoint.ranks import sdk
from bench.checkpoint.ranks.contestant import Contestant, folder_name
from bench.checkpoint.ranks.engine import State
from bench.checkpoint.ranks.node import committed_file
from bench.checkpoint.ranks.ours import Rekindle
from bench.checkpoint.ranks.raw_sink import RawSink
from bench.checkpoint.ranks.torch_dcp import DcpDisk, DcpFsspec
from bench.checkpoint.ranks.torch_save import TorchSave
from bench.checkpoint.ranks.usage import Usage
from bench.checkpoint.ranks.with_deepspeed import DeepSpeedSave

CONTESTANTS: dict[str, Callable[[CheckpointCase, State], Contestant]] = {
    "rekindle": Rekindle,
    "torch_save": TorchSave,
    "torch_dcp_adlfs": DcpFsspec,
    "torch_dcp_disk": DcpDisk,
    "deepspeed": DeepSpeedSave,
    "raw_sink": RawSink,
}
LOADS = 2
MOST_STEPS = 5000


class Rank:
    """Measurements of this rank with one contestant."""

    def __init__(self, case: CheckpointCase) -> None:
        self.case, self.times = case, CheckpointTimes()
        self.state = State(case.mib)
        self.state.fill()
        self.container = sdk.client(case.url)
        memory_before = Usage().resident()
        self.contestant = CONTESTANTS[case.contestant](case, self.state)
        self.usage = Usage(self.contestant.helpers)
        helpers = (self.usage.resident() or 0) - (Usage().resident() or 0)
        self.memory_before = None if memory_before is None else memory_before + helpers
        self.usage.reset_peak()
        self.newest = 0

    def run(self) -> CheckpointTimes:
        """Run all measurements of the case and return them."""
        self.times.state_bytes = self.state.bytes
        if self.case.load_only:
            self.newest = _place_entry(self.case, self.state.rank)
            dist.barrier()
        else:
            for _ in range(self.case.saves):
                self._save_alone()
            if self.contestant.isolated:
                self._run_baseline()
                self._run_with_save()
            self.times.save_memory = self._memory_above_start()
        for _ in range(LOADS):
            self._load()
        self.contestant.close()
        return self.times

    def _save_alone(self) -> None:
        self._discard_last()
        busy, start = self.usage.cpu(), time.perf_counter()
        future = self.contestant.save(self.newest)
        self.times.blocked_s.append(time.perf_counter() - start)
        future.result()
        self.times.durable_s.append(time.perf_counter() - start)
        self.times.save_cpu_s.append(self.usage.cpu() - busy)

    def _discard_last(self) -> None:
        """Delete the last save from the sink, whose memory is limited, and number the next one."""
        dist.barrier()
        if self.newest and self.state.rank == 0:
            sdk.discard(self.container, folder_name(self.newest))
        self.newest += 1
        dist.barrier()

    def _run_baseline(self) -> None:
        for _ in range(self.case.steps):
            self.times.twin_s.append(_timed(lambda: self._step(done=False)))

    def _run_with_save(self) -> None:
        self._discard_last()
        start = time.perf_counter()
        future = self.contestant.save(self.newest)
        self.times.loop_blocked_s = time.perf_counter() - start
        self.state.touch()
        self._step(done=False)
        self.times.loop_s.append(time.perf_counter() - start)
        while not self._step_while_saving(future) and len(self.times.loop_s) < MOST_STEPS:
            pass
        future.result()

    def _step_while_saving(self, future: "Future[Any]") -> bool:
        start = time.perf_counter()
        all_done = self._step(done=future.done())
        self.times.loop_s.append(time.perf_counter() - start)
        return all_done

    def _step(self, *, done: bool) -> bool:
        """Sleep in place of GPU work, synchronize all ranks, and return whether all are done."""
        time.sleep(self.case.step_seconds)
        done_count = torch.tensor([float(done)])
        dist.all_reduce(done_count)
        return bool(done_count.item() == self.state.ranks)

    def _load(self) -> None:
        self.state.clear()
        self.usage.reset_peak()
        dist.barrier()
        busy, start = self.usage.cpu(), time.perf_counter()
        self.contestant.load(self.newest)
        dist.barrier()
        self.times.load_s.append(time.perf_counter() - start)
        self.times.load_cpu_s.append(self.usage.cpu() - busy)
        self.times.load_memory = (
            max(self._memory_above_start() or 0, self.times.load_memory or 0) or None
        )
        self.times.same = self.state.matches() and (self.times.same or len(self.times.load_s) == 1)

    def _memory_above_start(self) -> int | None:
        peak = self.usage.peak()
        return (
            None
            if peak is None or self.memory_before is None
            else max(peak - self.memory_before, 0)
        )


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _place_entry(case: CheckpointCase, rank: int) -> int:
    """Copy HEAD's entry to where Rekindle's commit would have written it, and return its step."""
    source = Path(case.load_only)
    number = int(source.stem.rpartition("-")[2])
    if rank == 0:
        shutil.copy(source, committed_file(Path(case.folder), number))
    return number


def _exit_on_error(*error: Any) -> None:  # noqa: ANN401 - as sys.excepthook is called
    """Print the exception and exit at once, because threads that wait for other ranks never end."""
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)


def main(arguments: Sequence[str]) -> int:
    """Run the rank and exit without DeepSpeed's teardown, which sometimes aborts."""
    sys.excepthook = _exit_on_error
    case = CheckpointCase.read(Path(arguments[0]))
    rank = Rank(case)
    rank.run().write(Path(case.folder) / f"result-{rank.state.rank}.json")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
