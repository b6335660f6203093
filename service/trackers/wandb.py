"""Send steps to Weights & Biases: each batch resumes the run in its own process (`wandb_batch.py`).

So any replica can continue a run, and a package that hangs or crashes harms nothing else.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from tempfile import TemporaryDirectory

from service.domain.states import JobState
from service.trackers.tracker import Point, TrackerError, TrackerRun

PROGRAM = "service.trackers.wandb_batch"
_MAX_PROCESSES = 4


@dataclass(frozen=True, kw_only=True)
class Wandb:
    """Account of one API key; ``environment``: that of the child processes."""

    key: str = field(repr=False)
    environment: Mapping[str, str]
    seconds: float = 120.0  # timeout of a batch
    python: str = sys.executable  # interpreter that has the package
    interval: timedelta = timedelta(seconds=30)
    block_steps: int = 1
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_PROCESSES))

    async def send(self, run: TrackerRun, points: Sequence[Point]) -> str:
        """See the protocol."""
        failed = run.outcome not in (None, JobState.SUCCEEDED)
        batch = {
            "key": self.key,
            "job": run.job_id,
            "options": run.options,
            "points": [(point.step, point.values) for point in points],
            "exit_code": 1 if failed else 0,
        }
        async with self._slots:
            with TemporaryDirectory(prefix="rekindle-wandb-", ignore_cleanup_errors=True) as folder:
                output = await self._run(json.dumps(batch).encode(), folder)
        return _url(output)

    async def close(self) -> None:
        """Do nothing: no process outlives its batch."""

    async def _run(self, batch: bytes, folder: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            self.python,
            "-m",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={"HOME": folder, "WANDB_DIR": folder, **self.environment},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.seconds):
                output, _ = await process.communicate(batch)
        except TimeoutError:
            raise TrackerError(f"wandb did not finish in {self.seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return output


def _url(output: bytes) -> str:
    """Return the run's address from the last line, or raise TrackerError."""
    try:
        answer = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise TrackerError("wandb ended without an answer") from None
    if "error" in answer:
        raise TrackerError(f"wandb: {answer['error']}")
    return str(answer["url"])
