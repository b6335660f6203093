"""Jobs of the benchmark: training data, submission and outcome."""

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from bench.recovery.book import JobOutcome
from bench.recovery.observed import blobs
from bench.recovery.observed.blobs import Containers
from bench.recovery.phases import ENDED_STATES
from bench.report import CannotMeasure
from rekindle.local.layout import TINY_MODEL

ROWS = 480
TIMEOUT_SECONDS = 90.0  # timeout of one request, with repeated kills of the service


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One kind of job; all jobs of a kind must end with the same parameters."""

    name: str
    nodes: int
    zero_stage: int
    epochs: int
    seed: int


SOLO = Spec(name="solo", nodes=1, zero_stage=1, epochs=3, seed=11)
PAIR = Spec(name="pair", nodes=2, zero_stage=2, epochs=3, seed=12)


async def sample_file(folder: Path, rows: int) -> dict[str, Any]:
    """Write chats to train on, and return the arguments of the request that uploads them."""
    path = folder / "chats.jsonl"
    argv = ["-m", "trainer.samples", str(path), "--rows", str(rows), "--seed", "1"]
    process = await asyncio.create_subprocess_exec(sys.executable, *argv)
    if await process.wait():
        raise CannotMeasure(f"trainer.samples failed with {process.returncode}")
    return {"data": {"purpose": "fine-tune"}, "files": {"file": (path.name, path.read_bytes())}}


class RecoveryJobs:
    """Client of the API, and of the database for exact values that the API rounds."""

    def __init__(
        self, api: httpx.AsyncClient, database: psycopg.AsyncConnection[Any], blob: Containers
    ) -> None:
        self._api = api
        self.database = database
        self._containers = blob
        self._file = ""

    async def upload(self, folder: Path) -> None:
        """Write the training file and upload it."""
        answer = await self._call_with_retries(
            "POST", "/v1/files", **await sample_file(folder, ROWS)
        )
        self._file = answer["id"]

    async def submit(self, spec: Spec, name: str) -> str:
        """Submit a job; the same ``name`` again returns the same job."""
        hyper = {"n_epochs": spec.epochs, "batch_size": 4}
        body = {
            "model": TINY_MODEL,
            "training_file": self._file,
            "seed": spec.seed,
            "suffix": spec.name,
            "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
            "infrastructure": {"nodes": spec.nodes},
            "training": {
                "max_seq_len": 64,
                "learning_rate": 0.002,
                "checkpoint_seconds": 1.5,
                "zero_stage": spec.zero_stage,
            },
        }
        headers = {"Idempotency-Key": name}
        job = await self._call_with_retries(
            "POST", "/v1/fine_tuning/jobs", json=body, headers=headers
        )
        return str(job["id"])

    async def states(self, jobs: set[str]) -> dict[str, str]:
        """Return the states of jobs by id."""
        query = "select id, state from jobs where id = any(%s)"
        rows = await (await self.database.execute(query, [list(jobs)])).fetchall()
        return dict(rows)

    async def ended(self, job: str, within: float) -> str:
        """Wait up to ``within`` seconds for the end of a job and return its state."""
        latest = time.monotonic() + within
        while (state := (await self.states({job}))[job]) not in ENDED_STATES:
            if time.monotonic() > latest:
                break
            await asyncio.sleep(0.2)
        return state

    async def outcome(self, job: str) -> JobOutcome:
        """Return the outcome of a job: the model's hash from HEAD, and the loss of every step."""
        query = "select state, error from jobs where id = %s"
        row = await (await self.database.execute(query, [job])).fetchone()
        assert row is not None, "the job was accepted"
        head = await asyncio.to_thread(blobs.head, self._containers.of(job))
        model = (head or {}).get("model") or {}
        query = "select step, loss from metrics where job_id = %s"
        losses = await (await self.database.execute(query, [job])).fetchall()
        return JobOutcome(
            job=job,
            state=row[0],
            error=(row[1] or {}).get("message", ""),
            parameters_sha256=model.get("parameters_sha256", ""),
            losses=dict(losses),
        )

    async def cancel(self, job: str) -> None:
        """Cancel a job, so that the next one can run."""
        await self._call_with_retries("POST", f"/v1/fine_tuning/jobs/{job}/cancel")

    async def _call_with_retries(self, verb: str, path: str, **content: Any) -> Mapping[str, Any]:  # noqa: ANN401 - httpx's own
        """Send a request again until it is answered, because the service is killed repeatedly."""
        latest = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                answer = await self._api.request(verb, path, timeout=10, **content)
            except httpx.TransportError:
                if time.monotonic() > latest:
                    raise
            else:
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    answer.raise_for_status()
                    plain: Mapping[str, Any] = answer.json()
                    return plain
                if time.monotonic() > latest:
                    answer.raise_for_status()
            await asyncio.sleep(0.3)
