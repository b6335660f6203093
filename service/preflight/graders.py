"""Run users' graders in a child process with limits on memory and CPU time.

The child is `trainer/graders/limited.py`, known here by its name alone. It runs no code of users,
but comparing two long texts takes seconds and holds Python's GIL, as compiling a source does.
"""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE
from typing import Any

from service.domain.errors import InvalidRequest, ServiceUnavailable
from service.preflight.process import child_environment

PROGRAM = "trainer.graders.limited"
MAX_RUNS = 2  # runs, and as many checks, so that runs do not delay new jobs
CPU_SECONDS = 10  # of one child
SECONDS = 30.0  # wall-clock time, with the wait for a free place
Json = dict[str, Any]


class GraderProcess:
    """Starts one child process per request, ``MAX_RUNS`` of each kind at a time."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS, seconds: float = SECONDS) -> None:
        self._runs, self._checks = asyncio.Semaphore(MAX_RUNS), asyncio.Semaphore(MAX_RUNS)
        self._cpu_seconds, self._seconds = cpu_seconds, seconds

    async def run(self, grader: Json, sample: str, item: Json) -> Json:
        """Return the grade as `limited.py` reports it.

        Raises InvalidRequest for a grader that cannot run here or takes too long, and
        ServiceUnavailable.
        """
        request = {"grader": grader, "model_sample": sample, "item": item}
        return await self._ask(request, self._runs, "grader")

    async def check_sources(self, sources: dict[str, str]) -> None:
        """Compile sources of Python graders by parameter; raises as ``run`` does."""
        if sources:
            await self._ask({"sources": sources}, self._checks, next(iter(sources)))

    async def _ask(self, request: Json, turns: asyncio.Semaphore, param: str) -> Json:
        request["cpu_seconds"] = self._cpu_seconds
        try:
            async with asyncio.timeout(self._seconds), turns:
                code, output, errors = await _run_child(json.dumps(request).encode())
        except TimeoutError:
            raise ServiceUnavailable(
                "The service is busy trying other graders. Try again in a minute."
            ) from None
        if code == -signal.SIGXCPU:
            raise InvalidRequest(
                f"{param}: takes more than {self._cpu_seconds} seconds. Make it or the texts "
                "shorter, or try it on your own machine: "
                "python -m trainer.graders GRADER.json ROWS.jsonl",
                code="grader_too_slow",
                param=param,
            )
        if code < 0:
            raise ServiceUnavailable(f"The grader's process was ended by signal {-code}.")
        if code:
            raise RuntimeError(f"{PROGRAM} failed: {errors.decode(errors='replace')}")
        answer: Json = json.loads(output)
        if "refused" in answer:
            raise refused_grader(answer["refused"])
        return answer


def refused_grader(message: str) -> InvalidRequest:
    """Return the error for a grader; ``message`` begins with the member at fault."""
    return InvalidRequest(message, param=message.split(": ", maxsplit=1)[0][:200])


async def _run_child(request: bytes) -> tuple[int, bytes, bytes]:
    """Run one child process to its end; return its exit status, output and errors."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", PROGRAM),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=child_environment(),
        start_new_session=True,
    )
    try:
        output, errors = await child.communicate(request)
        return await child.wait(), output, errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
