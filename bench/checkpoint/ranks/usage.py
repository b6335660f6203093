"""CPU time and peak memory of a group of processes, from /proc."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Usage:
    """This process, its helpers and all their descendants."""

    helpers: Sequence[int] = ()

    def cpu(self) -> float:
        """Return CPU seconds so far; those of helpers have a resolution of 0.01 s."""
        times = [psutil.Process(pid).cpu_times() for pid in self._helper_pids()]
        return time.process_time() + sum(t.user + t.system for t in times)

    def resident(self) -> int | None:
        """Return bytes of resident memory now; None without /proc."""
        return self._sum("VmRSS")

    def peak(self) -> int | None:
        """Return the sum of each process's peak resident bytes since `reset_peak`."""
        return self._sum("VmHWM")

    def reset_peak(self) -> None:
        """Reset the peaks of resident memory."""
        for pid in (os.getpid(), *self._helper_pids()):
            mark = Path(f"/proc/{pid}/clear_refs")
            if mark.exists():
                mark.write_text("5")

    def _helper_pids(self) -> list[int]:
        started = [psutil.Process(pid).children(recursive=True) for pid in self.helpers]
        return [*self.helpers, *(child.pid for children in started for child in children)]

    def _sum(self, name: str) -> int | None:
        values = [_memory_of(pid, name) for pid in (os.getpid(), *self._helper_pids())]
        return None if None in values else sum(n for n in values if n)


def _memory_of(pid: int, name: str) -> int | None:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(lines[name].split()[0]) * 1024
