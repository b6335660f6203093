"""What a node of Azure ML boots into: carries out the orders that appear in its folder.

A plain file for an isolated interpreter: standard library only, nothing of the emulator. Orders
are azureml/NAME.json; NAME.begun says that its processes run, NAME.cancel asks for their end,
NAME.kill has them killed, and NAME.done is written with the exit code.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.1  # seconds between two looks
GRACE = 10.0  # seconds from the request to end to the kill
CANCELLED = -signal.SIGTERM
SET_CHILD_SUBREAPER = 36  # prctl(2)
Process = subprocess.Popen[bytes]


class OrderTask:
    """One order that is being carried out."""

    def __init__(self, order: Path) -> None:
        self._file = order
        self._kill_at: float | None = None
        self._code = 0
        self._processes: list[Process] = []
        content: dict[str, Any] = json.loads(order.read_text())
        folder = order.with_suffix("")
        folder.mkdir(exist_ok=True)
        pull = ["docker", "pull", image := content["image"]]
        pulled = subprocess.run(pull, capture_output=True, check=False)
        if pulled.returncode:
            for log_file in (Path(content["processes"][0]["log"]), order.with_suffix(".unpulled")):
                log_file.write_bytes(pulled.stderr)
            self._code = pulled.returncode
            return
        for process in content["processes"]:
            self._processes.append(_start(image, content["command"], process, folder))
        order.with_suffix(".begun").touch()

    def poll(self) -> bool:
        """Return whether it is over; its exit code is written then."""
        if self._file.with_suffix(".kill").exists():
            self._signal(signal.SIGKILL)
        codes = [process.poll() for process in self._processes]
        self._code = self._code or next((code for code in codes if code), 0)
        cancelled = self._file.with_suffix(".cancel").exists()
        if None in codes:
            if cancelled or self._code:
                self._code = self._code or CANCELLED
                self._end()
            return False
        _kill_orphans()
        temporary = self._file.with_suffix(".new")
        temporary.write_text(str(self._code))
        temporary.replace(self._file.with_suffix(".done"))
        return True

    def _end(self) -> None:
        """Ask all to end, and later leave them no choice."""
        now = time.monotonic()
        if self._kill_at is None:
            self._kill_at = now + GRACE
            self._signal(signal.SIGTERM)
        elif now >= self._kill_at:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for process in (p for p in self._processes if p.poll() is None):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)


def _start(image: str, command: str, process: dict[str, Any], folder: Path) -> Process:
    arguments = ["docker", "run", "--rm", "--entrypoint", "sh"]
    for name, value in process["environment"].items():
        arguments += ["-e", f"{name}={value}"]
    with Path(process["log"]).open("ab") as log:
        return subprocess.Popen(
            [*arguments, image, "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _kill_orphans() -> None:
    """Kill what its containers left running: they end with their first process, as docker's do."""
    tree = Path("/proc/self/task")
    while pids := [
        int(pid) for file in tree.glob("*/children") for pid in file.read_text().split()
    ]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # what was below it is here now


def main() -> None:
    """Look for orders until the VM is no more. The working directory is the VM's folder."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    orders = Path("azureml").absolute()
    orders.mkdir(exist_ok=True)
    tasks: dict[Path, OrderTask] = {}
    finished: set[Path] = set()
    while True:
        for order in sorted(set(orders.glob("*.json")) - finished - set(tasks)):
            tasks[order] = OrderTask(order)
        for order in [order for order, task in tasks.items() if task.poll()]:
            finished.add(order)
            del tasks[order]
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
