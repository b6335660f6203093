"""Run the user's `grade` in a process of its own, over pipes; `restrictions.py` limits it.

An answer is blamed for the end of the process only if the process was fresh. Otherwise an earlier
answer may have caused it, and grades would depend on their order.
"""

import contextlib
import json
import math
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainer.graders.answer import Grade, ModelAnswer
from trainer.graders.sandbox.restrictions import CPU_SECONDS

SECONDS = 10.0  # for one grade, by the wall clock
_START_SECONDS = 60.0  # Python's own start on a busy machine
_LONGEST_REPLY = 64 * 1024  # bytes
_LONGEST_ERROR = 1000  # characters
_CHILD = Path(__file__).with_name("child.py")


class SandboxError(RuntimeError):
    """The process cannot be started or confined: nothing can be graded here."""


class _ProcessEndedError(Exception):
    """The process ended, or broke the protocol."""


class Sandbox:
    """One process, started at the first grade and restarted when it ended."""

    def __init__(
        self, source: str, folder: Path, seconds: float = SECONDS, program: Path = _CHILD
    ) -> None:
        """Use ``folder``, which is emptied, as the working folder."""
        self._source, self._folder, self._seconds = source, folder, seconds
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._number = 0  # of the request
        self._graded_seconds = 0.0  # seconds that this process has graded

    def grade(self, answer: ModelAnswer) -> Grade:
        """Return the user's score; raise SandboxError if no process can start."""
        if self._graded_seconds > CPU_SECONDS / 2:
            self.close()
        is_new_process = self._process is None
        try:
            return self._grade_once(answer)
        except TimeoutError:
            self.close()
            return Grade(0.0, f"timed out after {self._seconds:g} s")
        except _ProcessEndedError as e:
            self.close()
            return Grade(0.0, str(e)) if is_new_process else self.grade(answer)

    def close(self) -> None:
        """Kill the process; the next grade starts another one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process, self._buffer, self._graded_seconds = None, b"", 0.0

    def _grade_once(self, answer: ModelAnswer) -> Grade:
        process = self._process or self._start()
        self._number += 1
        request = {"number": self._number, "text": answer.text, "item": answer.item}
        start = time.monotonic()
        reply = self._exchange(process, request, start + self._seconds)
        self._graded_seconds += time.monotonic() - start
        return _grade(reply, self._number)

    def _start(self) -> subprocess.Popen[bytes]:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        process = self._process = _start_process(self._program, self._folder)
        try:
            deadline = time.monotonic() + _START_SECONDS
            reply = self._exchange(process, {"source": self._source}, deadline)
            problem = "" if reply.get("ready") is True else reply.get("error")
        except (TimeoutError, _ProcessEndedError) as e:
            problem = str(e) or f"no word within {_START_SECONDS:g} s"
        if problem != "":
            self.close()
            raise SandboxError(f"the process of a python grader could not be set up: {problem}")
        return process

    def _exchange(
        self, process: subprocess.Popen[bytes], request: dict[str, Any], deadline: float
    ) -> dict[str, Any]:
        """Send a line and wait for one; raise TimeoutError or _ProcessEndedError."""
        try:
            self._send(process, json.dumps(request).encode() + b"\n", deadline)
            reply = json.loads(self._read_line(process, deadline))
        except BrokenPipeError:
            raise _ProcessEndedError(_end_message(process)) from None
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise _ProcessEndedError("the grader wrote over the pipe that its grades go through")
        return reply

    def _send(self, process: subprocess.Popen[bytes], line: bytes, deadline: float) -> None:
        assert process.stdin is not None
        pipe, unsent = process.stdin.fileno(), memoryview(line)
        while unsent:
            _, writable, _ = select.select([], [pipe], [], _remaining(deadline))
            if writable:
                unsent = unsent[os.write(pipe, unsent) :]

    def _read_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([pipe], [], [], _remaining(deadline))
            if not readable:
                continue
            piece = os.read(pipe, _LONGEST_REPLY)
            self._buffer += piece
            if not piece:
                raise _ProcessEndedError(_end_message(process))
            if len(self._buffer) > _LONGEST_REPLY:
                raise _ProcessEndedError(
                    f"the grader's reply is longer than {_LONGEST_REPLY} bytes"
                )
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line


def _start_process(program: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process without our environment, terminal or open files."""
    settings = {
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",  # threads are refused
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",  # the order of sets is the same in every process
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    process = subprocess.Popen(
        [sys.executable, "-s", "-B", "-P", str(program), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=settings,
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _end_message(process: subprocess.Popen[bytes]) -> str:
    """Describe how the process ended; it may have closed its pipe and still run."""
    try:
        status = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "the grader closed the pipe that its grades go through"
    if status < 0:
        return f"the grader's process was ended by signal {-status}"
    return f"the grader's process exited with status {status}"


def _grade(reply: dict[str, Any], number: int) -> Grade:
    """Convert the reply, which user code may have written, to a grade."""
    score, error = reply.get("score"), reply.get("error")
    if reply.get("number") != number:
        raise _ProcessEndedError("the grader wrote over the pipe that its grades go through")
    if isinstance(error, str) and error:
        return Grade(0.0, error[:_LONGEST_ERROR])
    if not isinstance(score, float) or not math.isfinite(score):
        raise _ProcessEndedError("the grader wrote over the pipe that its grades go through")
    return Grade(score)
