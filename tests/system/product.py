"""`make up` as a subprocess, and a client that retries while the service restarts."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import httpx

from contract.choices import Engine
from rekindle.local import faults
from rekindle.local.layout import TINY_MODEL
from rekindle.local.running_stack import StackInfo
from tests import waiting

ROW = {
    "messages": [
        {"role": "user", "content": "Which number comes after {n}?"},
        {"role": "assistant", "content": "After {n} comes {m}."},
    ]
}
JOB = {
    "model": "rekindle/tiny-llama",
    "seed": 3,
    "infrastructure": {"nodes": 2},
    "training": {"max_seq_len": 64, "learning_rate": 0.001, "checkpoint_seconds": 2},
}
LINES = [json.dumps(ROW).replace("{n}", str(n)) for n in range(320)]
DATA = "\n".join(LINES).replace("{m}", "the next").encode()


@dataclass
class Product:
    """A running stack and a client that retries while the service restarts."""

    stack: StackInfo
    http: httpx.AsyncClient

    async def submit(
        self, epochs: int, data: bytes = DATA, *, batch_size: int = 8, **overrides: object
    ) -> str:
        form = {"files": {"file": ("chats.jsonl", data)}, "data": {"purpose": "fine-tune"}}
        file = (await self.http.post("/files", **form)).raise_for_status().json()  # type: ignore[arg-type] # a form
        hyper = {"hyperparameters": {"n_epochs": epochs, "batch_size": batch_size}}
        method = {"type": "supervised", "supervised": hyper}
        body = {**JOB, "method": method, "training_file": file["id"], **overrides}
        answer = (await self.http.post("/fine_tuning/jobs", json=body)).raise_for_status()
        return str(answer.json()["id"])

    async def get(self, path: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any] | None:
            try:
                answer = await self.http.get(path)
            except httpx.TransportError:
                return None  # the service restarts
            return None if answer.status_code == 503 else answer.raise_for_status().json()

        json_body = await waiting.until(ask, lambda a: a is not None, interval=0.3, deadline=60)
        assert json_body is not None
        return json_body

    async def until(
        self, job_id: str, accept: Callable[[dict[str, Any]], bool], deadline: float = 180.0
    ) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            return await self.get(f"/fine_tuning/jobs/{job_id}")

        return await waiting.until(look, accept, interval=0.3, deadline=deadline)

    async def finished(self, job_id: str, deadline: float = 600.0) -> dict[str, Any]:
        """Return the job once it has ended; wait long enough for a slow machine."""
        return await self.until(job_id, lambda job: job["finished_at"] is not None, deadline)

    async def evict_one(self, job: dict[str, Any], *, notice: bool) -> None:
        """Evict a machine of the job's current attempt."""
        machine, *_ = await faults.list_machines(self.stack, job["attempts"]["current"])
        await faults.evict_vm(self.stack, machine, notice=notice)

    async def attempts(self, job_id: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.get(f"/fine_tuning/jobs/{job_id}/attempts"))[
            "data"
        ]
        return rows


def saved_step(job: dict[str, Any]) -> int:
    """Return the step of the job's newest checkpoint; 0 without one."""
    checkpoint = job["latest_checkpoint"]
    return int(checkpoint["step_number"]) if checkpoint else 0


START_SECONDS = 180.0


@dataclass(frozen=True)
class Up:
    """A running `make up`."""

    process: asyncio.subprocess.Process
    state: Path
    port: int

    def facts(self) -> dict[str, str]:
        """Return what the stack writes for programs."""
        facts: dict[str, str] = json.loads((self.state / "stack.json").read_text())
        return facts

    def printed(self) -> str:
        """Return what the stack printed."""
        return (self.state / "printed").read_text()


@asynccontextmanager
async def up(
    state: Path,
    port: int,
    model: str = TINY_MODEL,
    engines: Sequence[Engine] = (Engine.SCALE_SET,),
    **settings: str,
) -> AsyncIterator[Up]:
    """Start it and wait until it is ready or has ended; end it afterwards.

    With these settings of the service, beyond those that the stack gives it.
    """
    command = [
        sys.executable,
        "-m",
        "rekindle.local.up",
        "--state",
        str(state),
        "--port",
        str(port),
    ]
    command += ["--model", model, *(f"--engine={engine}" for engine in engines)]
    with _printing(state) as output:
        environment = {**os.environ, **settings}  # noqa: TID251 - what `make up` would inherit
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env=environment
        )
    running = Up(process, state, port)

    async def over() -> bool:
        return (state / "stack.json").exists() or process.returncode is not None

    try:
        await waiting.until(over, bool, deadline=START_SECONDS)
        yield running
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


def _printing(state: Path) -> TextIO:
    state.mkdir(exist_ok=True)
    return (state / "printed").open("w")
