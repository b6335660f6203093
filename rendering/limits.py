"""Resource limits of a process that renders untrusted templates and rows."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rendering.templates.chat_template import RenderError

MEMORY_BYTES = 6 * 1024**3  # address space; a vocabulary of 262,000 tokens takes 1 GiB
ROW_SECONDS = 3.0  # CPU time of all threads
EXPLANATION_SECONDS = 0.5  # for each attempt to explain a row that took too long
NICE = 5


def limit_process() -> None:
    """Limit memory and file size, and lower the priority of this process."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGVTALRM, _raise_timeout)


@contextmanager
def limited_row() -> Iterator[None]:
    """Raise RenderError if one row takes too long."""
    signal.setitimer(signal.ITIMER_VIRTUAL, ROW_SECONDS, EXPLANATION_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _raise_timeout(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise RenderError(f"rendering takes longer than {ROW_SECONDS:g} seconds")
