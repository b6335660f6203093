"""Benchmark of the CPU time that the service needs for one API request.

Run it with `python -m bench.api [--requests N] [--json [FILE]]`. It measures three groups:

GET of a job that trains, on a stack with PostgreSQL, one api process, one reconciler process, a
fake cloud and simulated nodes: as a polling client, with the current ETag (304), and with a query
that bypasses the cache. POST, pause, resume, cancel and list of jobs, on a stack without a
reconciler; jobs are posted with distinct learning rates and then with identical bodies. Baselines:
a bare FastAPI app, and an app that inserts one row for each POST.

All requests use kept-alive connections. CPU is that of the api process, in microseconds per
request. CPU of PostgreSQL and the number of SQL statements are shown beside it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from bench import ports, report
from bench.api import floor, statements
from bench.report import CannotMeasure, Measure
from bench.scale.parts.line import Broken
from bench.scale.stack import ScaleStack, Shape, read_answer, stack

LANES = floor.LANES  # concurrent requests
WARM = 50  # warm-up requests, not counted
POSTS = 4  # divisor: POSTs are a quarter of --requests
GET_BAR, POST_BAR = 1500.0, 3000.0  # us: design, section 7
TIMEOUT = 120.0  # seconds
JOBS = "/v1/fine_tuning/jobs"
Ask = Callable[[], Awaitable[httpx.Response]]


@dataclass(frozen=True, kw_only=True)
class Used:
    """CPU time of one kind of request, in microseconds per request."""

    name: str
    api: float
    postgres: float | None  # None: this program has no database
    statements: float | None = None  # None: not counted


def main() -> int:
    """Run the benchmark, print its tables and return the exit status."""
    parser = report.option_parser("api", __doc__)
    parser.add_argument(
        "--requests",
        type=int,
        default=2000,
        help="Requests of each kind (2000); of POSTs a quarter of them.",
    )
    options = parser.parse_args()
    used = report.run_to_exit(_run(options.requests), Broken, httpx.HTTPError)
    report.table(
        ("request", "api us", "postgres us", "statements"),
        [
            (u.name, round(u.api), None if u.postgres is None else round(u.postgres), u.statements)
            for u in used
        ],
    )
    result = _measures({u.name: u.api for u in used})
    arguments, rows = {"requests": options.requests}, [vars(u) for u in used]
    report.publish("api", result, options.json, arguments=arguments, rows=rows)
    return 0


def _measures(api: dict[str, float]) -> list[Measure]:
    def measure(
        name: str, row: str, bar: float | None, bare: str, floor: str | None = None
    ) -> Measure:
        rivals = {rival: round(api[rival]) for rival in (bare, floor) if rival}
        return Measure(
            name=name,
            value=round(api[row]),
            unit="us",
            bar=bar,
            limit=rivals[floor or bare],
            rivals=rivals,
        )

    return [
        measure("get_job_cpu", "GET job", GET_BAR, "bare GET"),
        measure("get_job_304_cpu", "GET job, no news", GET_BAR, "bare GET"),
        measure("get_job_read_cpu", "GET job, read", None, "bare GET"),
        measure("list_20_cpu", "GET list of 20", None, "bare GET"),
        measure("post_job_cpu", "POST job", POST_BAR, "bare POST", "POST a row"),
        measure("post_same_job_cpu", "POST job, same", None, "bare POST", "POST a row"),
        measure("pause_cpu", "pause", None, "bare POST", "POST a row"),
        measure("resume_cpu", "resume", None, "bare POST", "POST a row"),
        measure("cancel_cpu", "cancel", None, "bare POST", "POST a row"),
    ]


async def _run(requests: int) -> list[Used]:
    used = []
    async with _child("bare") as (process, client):
        meter = _Meter(process=process, stack=None)
        used.append(await meter.of("bare GET", requests, lambda: client.get("/jobs/1")))
    async with stack(Shape()) as running, running.api_client(timeout=60) as api:
        used += await _measure_reads(running, api, requests)
    async with stack(Shape(reconcilers=0)) as running, running.api_client(timeout=60) as api:
        used += await _measure_floors(running, requests // POSTS)
        used += await _measure_writes(running, api, requests // POSTS)
        meter = _Meter(process=running.processes["api"][0], stack=running)
        used.append(await meter.of("GET list of 20", requests // POSTS, lambda: api.get(JOBS)))
    return used


async def _measure_floors(running: ScaleStack, requests: int) -> list[Used]:
    """Measure the minimum cost of a POST: without any work, and with one inserted row."""
    body = {"model": "m", "training_file": "file-1", "hyperparameters": {"n_epochs": 3}}
    async with (
        _child("bare") as (process, client),
        _child("floor", running.database) as (floor_process, floor_client),
    ):
        bare = _Meter(process=process, stack=None)
        one_row = _Meter(process=floor_process, stack=running)
        return [
            await bare.of("bare POST", requests, lambda: client.post("/jobs", json=body)),
            await one_row.of("POST a row", requests, lambda: floor_client.post("/jobs", json=body)),
        ]


async def _measure_writes(running: ScaleStack, api: httpx.AsyncClient, requests: int) -> list[Used]:
    """Measure requests that create, pause, resume and cancel jobs."""
    meter = _Meter(process=running.processes["api"][0], stack=running)
    request = await running.job_request(api, nodes=1)
    job_ids: list[str] = []

    async def make(**members: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        answer = await api.post(JOBS, json=request | members)
        job_ids.append(answer.json()["id"])
        return answer

    async def another() -> httpx.Response:
        """Create a job with a new learning rate, so that no cached plan fits."""
        return await make(training={"learning_rate": 1e-4 + 1e-9 * len(job_ids)})

    used = [
        await meter.of("POST job", requests, another),
        await meter.of("POST job, same", requests, make),
    ]
    for verb in ("pause", "resume", "cancel"):
        remaining = iter(tuple(job_ids))

        async def change(verb: str = verb, remaining: Iterator[str] = remaining) -> httpx.Response:
            return await api.post(f"{JOBS}/{next(remaining)}/{verb}")

        used.append(await meter.of(verb, requests, change))
    return used


async def _measure_reads(running: ScaleStack, api: httpx.AsyncClient, requests: int) -> list[Used]:
    """Measure GET requests for a job that trains."""
    request = await running.job_request(api, nodes=1)
    job = (await read_answer(api.post(JOBS, json=request)))["id"]
    await wait_until_training(api, job)
    meter = _Meter(process=running.processes["api"][0], stack=running)
    path = f"{JOBS}/{job}"

    newest: dict[str, str] = {}

    async def have() -> httpx.Response:
        """Send the ETag of the last answer, as a client that polls does."""
        answer = await api.get(path, headers=newest)
        newest["if-none-match"] = answer.headers["etag"]
        return answer

    return [
        await meter.of("GET job", requests, lambda: api.get(path)),
        await meter.of("GET job, no news", requests, have),
        await meter.of("GET job, read", requests, lambda: api.get(path, params={"version": 0})),
    ]


@dataclass(frozen=True, kw_only=True)
class _Meter:
    process: psutil.Process
    stack: ScaleStack | None

    async def of(self, name: str, requests: int, ask: Ask) -> Used:
        """Send ``requests`` requests after a warm-up and return the average cost of one."""
        await _send_requests(min(WARM, requests), ask)
        before = self._seconds()
        await _send_requests(requests, ask)
        api, server = (
            1e6 * (b - a) / requests for a, b in zip(before, self._seconds(), strict=True)
        )
        counted = await statements.of(self.stack.data, ask) if self.stack else None
        return Used(name=name, api=api, postgres=server if self.stack else None, statements=counted)

    def _seconds(self) -> tuple[float, float]:
        times = self.process.cpu_times()
        server = self.stack.cpu()["postgres"] if self.stack else 0.0
        return times.user + times.system, server


async def _send_requests(requests: int, ask: Ask) -> None:
    async def lane(count: int) -> None:
        for _ in range(count):
            answer = await ask()
            if answer.status_code not in (200, 304):
                raise CannotMeasure(f"answered {answer.status_code}: {answer.text}")

    shares = [requests // LANES + (n < requests % LANES) for n in range(LANES)]
    await asyncio.gather(*(lane(share) for share in shares))


async def wait_until_training(api: httpx.AsyncClient, job: str) -> None:
    """Wait until the job trains."""
    loop = asyncio.get_running_loop()
    until = loop.time() + TIMEOUT
    while (phase := (await read_answer(api.get(f"{JOBS}/{job}")))["phase"]) != "training":
        if loop.time() > until:
            raise CannotMeasure(f"the job does not train, but is {phase}")
        await asyncio.sleep(0.2)


@asynccontextmanager
async def _child(
    module: str, *arguments: str
) -> AsyncIterator[tuple[psutil.Process, httpx.AsyncClient]]:
    port = ports.free()
    program = (sys.executable, "-m", f"bench.api.{module}", str(port), *arguments)
    child = await asyncio.create_subprocess_exec(*program)
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            await _wait_until_serving(client)
            yield psutil.Process(child.pid), client
    finally:
        child.terminate()
        await child.wait()


async def _wait_until_serving(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                await client.get("/jobs/1")
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            else:
                return


if __name__ == "__main__":
    sys.exit(main())
