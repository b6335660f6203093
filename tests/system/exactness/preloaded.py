"""Worlds whose ranks are forked from one process that has imported the trainer already.

To import torch, transformers and DeepSpeed takes a rank 5 seconds of CPU, and torchrun itself 3:
most of what a short run of the tiny model costs. The fork server of `multiprocessing` imports
them once, and forks while it has one thread. A forked rank runs the trainer's own entry as
`python -m` does. `worlds.start_torchrun` is the real start: a run that began with it is compared
bit for bit with forked ones in `test_exact_resume.py`.
"""

import importlib
import os
import runpy
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

IMPORTS = "tests.system.exactness.preloading"


@dataclass(frozen=True)
class ForkedWorld:
    """A process that stands for torchrun, with the methods of a `Popen`; ranks are its children."""

    process: ForkServerProcess
    printed: Path

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self.process.exitcode

    def terminate(self) -> None:
        """Send SIGTERM, which reaches the ranks."""
        self.process.terminate()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return what was printed.

        Raises subprocess.TimeoutExpired after ``timeout`` seconds.
        """
        self.process.join(timeout)
        if timeout is not None and self.process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.printed), timeout)
        return self.printed.read_text(), None


def start(
    program: str, argument: Path, printed: Path, *, world: int = 1, port: int = 0
) -> ForkedWorld:
    """Start ``world`` processes of a program of the trainer; what they print goes to a file."""
    printed.touch()
    arguments = (program, argument, printed, world, port)
    process = _server().Process(target=lead, args=arguments, daemon=True)
    process.start()
    return ForkedWorld(process, printed)


@cache
def _server() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload([IMPORTS])
    return context


def lead(program: str, argument: Path, printed: Path, world: int, port: int) -> None:
    """Fork the ranks and wait for them as torchrun does: when one fails, end the others."""
    os.setsid()
    _print_to(printed)
    importlib.import_module(IMPORTS)  # nothing is left to do, if the fork server is our own
    _require_one_thread()
    common = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = {_fork(program, argument, common | {"RANK": n, "LOCAL_RANK": n}) for n in range(world)}

    def pass_on(number: int, _frame: object = None) -> None:
        for pid in ranks:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    failed = False
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if status and not failed:
            failed = True
            pass_on(signal.SIGTERM)
    sys.exit(int(failed))


def _fork(program: str, argument: Path, environment: dict[str, object]) -> int:
    """Start a rank in a session of its own, as torchrun does; return its process id."""
    if pid := os.fork():
        return pid
    os.setsid()
    variables = {name: str(value) for name, value in environment.items()}
    os.environ.update(variables)  # noqa: TID251 - as torchrun does
    sys.argv = [program, str(argument)]
    sys.modules.pop(program, None)  # run anew, as the main program
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    os._exit(0)


def _print_to(path: Path) -> None:
    with path.open("wb") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)


def _require_one_thread() -> None:
    """Refuse to fork a process of several threads: a fork takes only one of them along."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"the process to fork has {threads} threads")
