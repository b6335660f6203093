"""The chaos run: users submit and cancel jobs, machines are evicted, replicas are killed."""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, LiteralString

import httpx
import psycopg
from psycopg.rows import dict_row

from bench.chaos.victims import Victims
from bench.report import CannotMeasure
from bench.scale.stack import ROW, ScaleStack

LANES = 8
ENOUGH_STEPS = 4  # steps after which a job may end
EVICT_SECONDS = 6.0  # average seconds between two evictions of 1 to 4 machines
CANCELLED = 0.1  # share of all jobs
SWEEP_SECONDS = 180.0  # seconds for the sweep to delete a leftover scale set


@dataclass
class Counted:
    """Results of one chaos run."""

    acknowledged: set[str] = field(default_factory=set)
    cancels: set[str] = field(default_factory=set)
    retries: int = 0  # requests sent again after no answer or a 5xx
    evictions: int = 0
    forgotten: list[str] = field(default_factory=list)
    doubled: set[str] = field(default_factory=set)
    swept: set[str] = field(default_factory=set)  # scale sets that the orphan sweep had to delete
    leaked: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    late_seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    attempts: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    polls: int = 0


@dataclass
class Chaos:
    """Driver of one chaos run."""

    stack: ScaleStack
    database: psycopg.AsyncConnection[dict[str, Any]]
    victims: Victims
    rng: random.Random
    counted: Counted
    print_line: Callable[[str], None]
    max_unfinished: int = 10**6  # maximum number of unfinished jobs
    client: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(trust_env=False, timeout=30)
    )

    async def run_jobs(self, jobs: int, every: float, limit: float) -> None:
        """Run ``jobs`` jobs to their end and count the results.

        Args:
            jobs: Number of jobs to submit.
            every: Average seconds between two kills; 0 kills nothing.
            limit: Seconds after which the remaining jobs are reported as unfinished.
        """
        start = time.monotonic()
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._evict_machines(),
                self._finish_jobs(),
                self._watch_attempts(),
                self._print_states(),
            )
        ]
        if every:
            tasks.append(asyncio.create_task(self.victims.kill_every(every)))
        try:
            await asyncio.wait_for(self._submit(jobs), limit)
            while (
                unfinished := await self._count_unfinished()
            ) and time.monotonic() - start < limit:
                for task in tasks:
                    if task.done():
                        task.result()  # raises the task's exception
                await asyncio.sleep(1)
            self.print_line(f"{unfinished} rows are not over")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._count(jobs)

    async def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send a request to a random api process and repeat it until one answers.

        Raises:
            CannotMeasure: The answer is a 4xx error.
        """
        while True:
            port = self.rng.choice(self.stack.ports)
            url = f"http://127.0.0.1:{port}/v1{path}"
            headers = {"authorization": f"Bearer {self.stack.key}", **options.pop("headers", {})}
            try:
                answer = await self.client.request(method, url, headers=headers, **options)
                if answer.status_code < 400:
                    return dict(answer.json())
                if answer.status_code < 500:
                    raise CannotMeasure(f"{method} {path}: {answer.status_code} {answer.text}")
            except httpx.TransportError:
                pass
            options["headers"] = headers
            self.counted.retries += 1
            await asyncio.sleep(0.5)

    async def rows(self, query: LiteralString, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a query, read from the database directly."""
        return await (await self.database.execute(query, values or None)).fetchall()

    async def fill(self, jobs: int) -> None:
        """Submit ``jobs`` jobs and cancel none of them."""
        await self._submit(jobs, cancelled=0.0)

    async def _submit(self, jobs: int, cancelled: float = CANCELLED) -> None:
        model = await self.stack.world.call("bench.stage")
        data = "\n".join(json.dumps(ROW) for _ in range(40)).encode()
        files = {"file": ("t.jsonl", data)}
        file = await self.request("POST", "/files", files=files, data={"purpose": "fine-tune"})
        body = {"model": model, "training_file": file["id"], "infrastructure": {"nodes": 2}}
        remaining = list(range(jobs))

        async def lane() -> None:
            while remaining:
                number = remaining.pop()
                await self._wait_for_room()
                key = {"idempotency-key": f"chaos-{number}"}
                document = body | {"seed": number, "hyperparameters": {"n_epochs": 50}}
                job = await self.request("POST", "/fine_tuning/jobs", json=document, headers=key)
                self.counted.acknowledged.add(job["id"])
                if self.rng.random() < cancelled:
                    await asyncio.sleep(self.rng.uniform(0, 10))
                    await self.request("POST", f"/fine_tuning/jobs/{job['id']}/cancel")
                    self.counted.cancels.add(job["id"])

        await asyncio.gather(*(lane() for _ in range(LANES)))
        self.print_line(f"{jobs} jobs acknowledged, {len(self.counted.cancels)} of them cancelled")

    async def _wait_for_room(self) -> None:
        """Wait until fewer than ``max_unfinished`` jobs are unfinished."""
        query: LiteralString = (
            "select count(*) as n from jobs where state not in ('succeeded', 'failed', 'cancelled')"
        )
        while True:
            (row,) = await self.rows(query)
            if row["n"] < self.max_unfinished:
                return
            await asyncio.sleep(1)

    async def _evict_machines(self) -> None:
        while True:
            await asyncio.sleep(EVICT_SECONDS * self.rng.uniform(0.5, 1.5))
            evicted = await self.stack.fleet.call("evict", self.rng.randrange(1, 5))
            self.counted.evictions += evicted

    async def _finish_jobs(self) -> None:
        """Write the final model into HEAD, as rank 0's node does, once a job has trained a bit."""
        query: LiteralString = (
            "select id from jobs where state = 'running'"
            " and (progress ->> 'step')::int >= %s limit 50"
        )
        while True:
            for row in await self.rows(query, ENOUGH_STEPS):
                data, etag = await self.stack.world.call("store.read", row["id"], "HEAD")
                head = json.loads(data)
                if head.get("model") is None:
                    head["model"] = _model(head["generation"])
                    text = json.dumps(head).encode()
                    await self._write_head(row["id"], text, etag)
            await asyncio.sleep(1)

    async def _write_head(self, job: str, text: bytes, etag: str) -> None:
        try:
            await self.stack.world.call("store.write", job, "HEAD", text, if_match=etag)
        except Exception as fault:  # by name: bench must not import the service
            if type(fault).__name__ != "PreconditionFailed":
                raise

    async def _watch_attempts(self) -> None:
        """Poll for jobs of which two attempts hold machines at the same time."""
        query: LiteralString = (
            "select id, job_id from attempts where state not in ('terminating', 'ended')"
        )
        while True:
            sets = {s.name for s in await self.stack.world.call("cloud.list_owned")}
            attempts_by_job = defaultdict(set)
            for row in await self.rows(query):
                if "rk-" + row["id"].removeprefix("att-") in sets:
                    attempts_by_job[row["job_id"]].add(row["id"])
            self.counted.doubled |= {job for job, of in attempts_by_job.items() if len(of) > 1}
            self.counted.polls += 1
            await asyncio.sleep(0.5)

    async def _print_states(self) -> None:
        while True:
            await asyncio.sleep(20)
            jobs = await self.rows("select state, count(*) as n from jobs group by 1 order by 1")
            states = ", ".join(f"{row['n']} {row['state']}" for row in jobs)
            tries = await self.rows(
                "select state, count(*) as n from attempts group by 1 order by 1"
            )
            states += "; attempts: " + ", ".join(f"{row['n']} {row['state']}" for row in tries)
            self.print_line(f"{states}; {sum(self.victims.kills.values())} kills")

    async def _count_unfinished(self) -> int:
        (row,) = await self.rows(
            "select (select count(*) from jobs"
            " where state not in ('succeeded', 'failed', 'cancelled'))"
            " + (select count(*) from attempts where state <> 'ended') as n"
        )
        return int(row["n"])

    async def _count(self, jobs: int) -> None:
        counted = self.counted
        states = {r["id"]: r["state"] for r in await self.rows("select id, state from jobs")}
        counted.forgotten = sorted(counted.acknowledged - states.keys())
        counted.forgotten += [j for j in sorted(counted.cancels) if states.get(j) == "failed"]
        counted.doubled |= states.keys() - counted.acknowledged
        if len(states) != jobs:
            counted.doubled.add(f"{len(states)} jobs of {jobs} requests")
        counted.unfinished = [j for j, s in states.items() if s not in ("succeeded", "cancelled")]
        counted.outcomes = {s: list(states.values()).count(s) for s in sorted(set(states.values()))}
        (row,) = await self.rows("select count(*) as n from attempts")
        counted.attempts = row["n"]
        counted.disordered = await self._find_disorder()
        counted.late_seconds = await self._max_event_delay()
        await self._wait_for_sweep()

    async def _wait_for_sweep(self) -> None:
        """Wait for the orphan sweep to delete leftover scale sets; count the others as leaks."""
        deadline = time.monotonic() + SWEEP_SECONDS
        while remaining := await self.stack.world.call("cloud.list_owned"):
            if time.monotonic() > deadline:
                self.counted.leaked = sorted(s.name for s in remaining)
                return
            for orphan in {s.name for s in remaining} - self.counted.swept:
                self.counted.swept.add(orphan)
                self.print_line(
                    f"left to the sweep: {orphan}: {await self._attempt_events(orphan)}"
                )
            await asyncio.sleep(1)

    async def _attempt_events(self, name: str) -> str:
        """Return the events of the attempt of a scale set, with their times."""
        events = await self.rows(
            "select code, at from events where attempt_id = %s order by seq",
            "att-" + name.removeprefix("rk-"),
        )
        return ", ".join(f"{row['at']:%H:%M:%S.%f} {row['code']}" for row in events)

    async def _max_event_delay(self) -> float:
        """Return the most seconds by which an event is dated before one that was written earlier.

        A step reads the clock before its transaction, which may then wait for a lock or a CPU.
        """
        (row,) = await self.rows(
            "select coalesce(extract(epoch from max(newest - at)), 0)::float8 as s from (select at,"
            " max(at) over (partition by job_id order by seq) as newest from events) e"
        )
        return float(row["s"])

    async def _find_disorder(self) -> list[str]:
        """Return attempts with duplicate events, and jobs that are still billed after their end."""
        duplicate_events: LiteralString = (
            "select attempt_id as job_id from events where code like 'attempt.%'"
            " and code not in ('attempt.needs_help', 'attempt.help_over')"
            " group by attempt_id, code having count(*) > 1"
        )
        open_rows: LiteralString = "select job_id from ledger where ended_at is null"
        queries: dict[str, LiteralString] = {
            "reported twice": duplicate_events,
            "billed for ever": open_rows,
        }
        rows = {fault: await self.rows(query) for fault, query in queries.items()}
        return sorted({f"{fault}: {row['job_id']}" for fault in rows for row in rows[fault]})


def _model(generation: int) -> dict[str, Any]:
    return {
        "path": f"models/step-00000010-{generation:08x}",
        "step": 10,
        "consumed_samples": 80,
        "world_size": 2,
        "generation": generation,
        "kind": "final",
        "size": 1000,
        "manifest_sha256": "0" * 64,
        "committed_at": time.time(),
    }


async def connected(stack: ScaleStack) -> psycopg.AsyncConnection[dict[str, Any]]:
    """Open a connection to the database that bypasses the service."""
    return await psycopg.AsyncConnection.connect(
        stack.database, autocommit=True, row_factory=dict_row
    )
