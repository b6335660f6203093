"""Fork server for faces of the service: `python -m bench.scale.parts.nursery`.

A new interpreter needs seconds of CPU to import the service. With a restart every few seconds,
imports would dominate the measurement. A child inherits only imported modules, because no
connection, thread or event loop exists before the fork.

One line of JSON on standard input is one order: {"arguments": [...], "env": {...}, "log": "file"}.
The answer is one line with the process id.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from bench.scale.parts import face


def main() -> None:
    """Fork a process for each order until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children leave no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if not (pid := os.fork()):
            _run_face(order)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _run_face(order: dict[str, Any]) -> None:
    """Turn a forked child into a face of the service; it never returns."""
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    random.seed()  # else all children would have the same random numbers
    devnull = os.open(os.devnull, os.O_RDWR)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for old, new in ((0, devnull), (1, devnull), (2, log)):
        os.dup2(new, old)
    os.environ.clear()
    os.environ.update(order["env"])
    socket, *sys.argv[1:] = order["arguments"]
    status = 1
    try:
        face.run(Path(socket))
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
