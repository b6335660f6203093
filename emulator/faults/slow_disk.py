"""A VM whose disk is slow: a process that writes more than it would take is stopped meanwhile.

Without root nothing can limit one process's writes: cgroups need root, and their first version
passes over buffered writes. So each process's `write_bytes` (/proc/PID/io) is watched, and
those that wrote are stopped (SIGSTOP) until the disk would have caught up. The mean over
a second is right; a process that waits for the disk stands still as a whole, which a
real one does only in the thread that writes.
"""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.05


class Brake:
    """Slows down what hangs below one init; its thread lives only while there is a limit."""

    def __init__(self, init: int) -> None:
        self._init = init
        self._limit = 0
        self._thread: threading.Thread | None = None

    def limit(self, bytes_per_second: int) -> None:
        """Limit their writes to this rate; 0: as fast as it goes."""
        self._limit = bytes_per_second
        if bytes_per_second and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._slow_down, daemon=True)
            self._thread.start()

    def _slow_down(self) -> None:
        before = {pid: written_by(pid) for pid in descendants(self._init)}
        stopped: set[int] = set()
        debt, looked = 0.0, time.monotonic()
        while self._limit:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            written = {pid: written_by(pid) for pid in descendants(self._init)}
            writers = {pid for pid, total in written.items() if total > before.get(pid, 0)}
            new_bytes = sum(written[pid] - before.get(pid, 0) for pid in writers)
            debt = max(debt + new_bytes - (now - looked) * self._limit, 0.0)
            before, looked = written, now
            if debt:
                stopped |= {pid for pid in writers if _signal(pid, signal.SIGSTOP)}
            else:
                stopped = _resume(stopped)
        _resume(stopped)


def possible() -> bool:
    """Whether this system tells how much a process has written."""
    return Path("/proc/self/io").exists()


def descendants(root: int) -> list[int]:
    """Every process below this one. One that ends while it is looked at has none."""
    pids, pending = [], [root]
    while pending:
        children = _children(pending.pop())
        pids += children
        pending += children
    return pids


def _children(pid: int) -> list[int]:
    pids = []
    with contextlib.suppress(OSError):  # even to list them fails where the process ends meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                pids += [int(text) for text in (thread / "children").read_text().split()]
    return pids


def written_by(pid: int) -> int:
    """Return the bytes that the process has sent to disks in its life; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def _resume(stopped: set[int]) -> set[int]:
    for pid in stopped:
        _signal(pid, signal.SIGCONT)
    return set()


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
