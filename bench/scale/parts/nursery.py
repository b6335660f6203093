"""`python -m bench.scale.parts.nursery`: faces of the service, forked where it is imported already.

A new interpreter takes seconds of CPU until it has imported the service; with one killed every few
seconds, that is most of what would be measured. A child has nothing of its parent but the modules:
no connection, thread or loop is opened before the fork. One line of JSON is one order, one line
with the process id its answer: {"arguments": [...], "env": {...}, "log": "file"}.
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
    """Until nobody orders any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who is killed leaves no zombie
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if not (pid := os.fork()):
            _become(order)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(order: dict[str, Any]) -> None:
    """Never returns."""
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    random.seed()  # else all children would draw the same
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for old, new in ((0, nowhere), (1, nowhere), (2, log)):
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
