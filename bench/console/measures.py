"""Measurements of the console benchmark, in the order in which they are taken."""

import asyncio
import json
import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx
import psycopg

from bench.api.__main__ import JOBS, wait_until_training
from bench.console.pages import Pages
from bench.report import CannotMeasure, Measure, percentile
from bench.scale.stack import ScaleStack, Shape, read_answer, stack
from rekindle.local.setup import ROOT, tools_path

LANES = 16  # concurrent requests
OFTEN = 2.0  # s between heartbeats of the watched job, for more samples
USUAL = 10.0  # s between heartbeats of a real node
SCRIPT = str(ROOT / "web" / "browser" / "measure.mjs")
CHANNEL = "rekindle"
MAX_POINTS = 2000
# Copies the row of the first step to all other steps, with a falling and noisy loss.
_MANY = """
insert into metrics
  (job_id, step, generation, loss, learning_rate, grad_norm, accuracy, seconds, tokens)
select job_id, n, generation, 2 + 5 * exp(-n / 1e5) + 0.2 * random(), 1e-4, 1, 1, 0.5, 512
from metrics, generate_series(2, %s) n
where job_id = %s and step = (select min(step) from metrics where job_id = %s)
on conflict do nothing
"""


@dataclass(frozen=True, kw_only=True)
class ConsoleOptions:
    """Arguments of the command line."""

    jobs: int
    pages: int
    seconds: float
    steps: int


async def all_of(order: ConsoleOptions) -> list[Measure]:
    """Start the stacks and return all measures."""
    async with stack(Shape(reconcilers=0)) as running, running.api_client(timeout=60) as api:
        results = await _measure_many_jobs(running, api, order)
    async with stack(Shape(beat=OFTEN)) as running, running.api_client(timeout=60) as api:
        results += await _pixels(running, await _training(running, api), order)
    async with stack(Shape(beat=USUAL)) as running, running.api_client(timeout=60) as api:
        job = await _training(running, api)
        results += await _open_pages(running, api, job, order)
        results += await _long_series(running, api, job, order)
    return results


async def _training(running: ScaleStack, api: httpx.AsyncClient) -> str:
    request = await running.job_request(api, nodes=1)
    job: str = (await read_answer(api.post(JOBS, json=request)))["id"]
    await wait_until_training(api, job)
    return job


async def _measure_many_jobs(
    running: ScaleStack, api: httpx.AsyncClient, order: ConsoleOptions
) -> list[Measure]:
    """Measure the list of queued jobs: script size in KB; paint, select and scroll in ms."""
    request = await running.job_request(api, nodes=1)
    jobs = await _submit(api, request, order.jobs)
    loaded = await _browser(running, "load", jobs[-1])
    used = await _browser(running, "list")
    script = max(*(load["script"] for load in loaded["jobs"]), loaded["job"]["script"])
    return [
        Measure(name="script_kb", value=round(script / 1000, 1), unit="KB, gzip", bar=230),
        Measure(
            name="first_paint_ms",
            value=round(median(load["paint"] for load in loaded["jobs"])),
            unit="ms",
            bar=1000,
        ),
        Measure(name="jobs", value=order.jobs, unit="jobs"),
        Measure(name="select_ms_p99", value=_ms(used["select"], 99), unit="ms", bar=200),
        Measure(name="scroll_frame_ms_p50", value=_ms(used["frames"], 50), unit="ms"),
        Measure(name="scroll_frame_ms_p99", value=_ms(used["frames"], 99), unit="ms"),
    ]


async def _submit(api: httpx.AsyncClient, request: dict[str, Any], count: int) -> list[str]:
    job_ids: list[str] = []
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            body = request | {"suffix": f"sweep-{number}"}
            job_ids.append((await read_answer(api.post(JOBS, json=body)))["id"])

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return job_ids


async def _pixels(running: ScaleStack, job: str, order: ConsoleOptions) -> list[Measure]:
    """Measure the seconds from the commit of a heartbeat until its step is on the screen."""
    noticed: list[float] = []
    listener = asyncio.create_task(_receive_events(running, job, noticed))
    steps = await _browser(running, "watch", job, order.seconds)
    listener.cancel()
    took = [at - noticed[before - 1] for at, _ in steps if (before := bisect_right(noticed, at))]
    if not took:
        raise CannotMeasure("no step of the job came to the screen")
    return [
        Measure(name="heartbeat_to_pixel_s_p50", value=_s(took, 50), unit="s"),
        Measure(name="heartbeat_to_pixel_s_p99", value=_s(took, 99), unit="s", bar=2),
    ]


async def _receive_events(running: ScaleStack, job: str, noticed: list[float]) -> None:
    """Record when the job's row changes; this clock and the browser's are the same machine's."""
    async with await psycopg.AsyncConnection.connect(running.database, autocommit=True) as conn:
        await conn.execute(f"listen {CHANNEL}")
        async for notice in conn.notifies():
            if job in notice.payload:
                noticed.append(time.time())  # noqa: PERF401 - read while it grows


async def _open_pages(
    running: ScaleStack, api: httpx.AsyncClient, job: str, order: ConsoleOptions
) -> list[Measure]:
    """Measure the CPU that the api process uses for open pages, in cores."""
    before = await _used(running, order.seconds)
    async with Pages(api, job, order.pages) as pages:
        after = await _used(running, order.seconds)
    return [
        Measure(name="open_pages", value=order.pages, unit="pages"),
        Measure(name="events_received", value=pages.received, unit="events"),
        Measure(name="open_pages_api_cpu", value=round(after - before, 3), unit="cores", bar=0.1),
    ]


async def _used(running: ScaleStack, seconds: float) -> float:
    """Return the cores that the api process uses, averaged over ``seconds``."""
    begin = running.cpu()["api"]
    await asyncio.sleep(seconds)
    return (running.cpu()["api"] - begin) / seconds


async def _long_series(
    running: ScaleStack, api: httpx.AsyncClient, job: str, order: ConsoleOptions
) -> list[Measure]:
    async with await psycopg.AsyncConnection.connect(running.database, autocommit=True) as conn:
        await conn.execute(_MANY, (order.steps, job, job))
        await conn.execute("analyze metrics")
    before, begin = running.cpu(), time.monotonic()
    answer = await read_answer(api.get(f"{JOBS}/{job}/metrics", params={"max_points": MAX_POINTS}))
    wall, after = time.monotonic() - begin, running.cpu()
    drawing = await _browser(running, "draw", job)
    cpu = sum(after[part] - before[part] for part in ("api", "postgres"))
    return [
        Measure(name="series_points", value=len(answer["data"]), unit="points", bar=MAX_POINTS),
        Measure(name="series_s", value=round(wall, 2), unit="s"),
        Measure(name="series_cpu_s", value=round(cpu, 2), unit="CPU s"),
        Measure(name="series_drawn_ms", value=drawing["drawn"], unit="ms"),
    ]


async def _browser(running: ScaleStack, mode: str, job: str = "", seconds: float = 0) -> Any:  # noqa: ANN401 - JSON
    url = f"http://127.0.0.1:{running.ports[0]}"
    program = ("node", SCRIPT, url, running.key, mode, job, str(seconds))
    environment = {**os.environ, "PATH": tools_path()}
    browser = await asyncio.create_subprocess_exec(
        *program, stdout=asyncio.subprocess.PIPE, env=environment
    )
    output, _ = await browser.communicate()
    with suppress(ValueError):
        return json.loads(output)
    raise CannotMeasure(f"the browser gave no figures for {mode}; is Chromium installed?")


def _ms(values: Sequence[float], percent: float) -> float | None:
    value = percentile(values, percent)
    return None if value is None else round(value, 1)


def _s(values: Sequence[float], percent: float) -> float | None:
    value = percentile(values, percent)
    return None if value is None else round(value, 2)
