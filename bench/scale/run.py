"""Steps of the scale benchmark: add jobs in stages, watch, flood, evict, cancel."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg

from bench.report import CannotMeasure, percentile, rounded
from bench.scale import bare
from bench.scale.stack import ScaleStack, read_answer

LANES = 16  # concurrent requests of users
FILL_SECONDS = 1800.0
BURST_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """Arguments of the command line."""

    jobs: int
    nodes: int
    seconds: float

    @property
    def stages(self) -> list[int]:
        """Numbers of jobs of the stages: a hundredth, a tenth, a third, all."""
        return sorted({max(self.jobs // divisor, 1) for divisor in (100, 10, 3, 1)})


@dataclass(kw_only=True)
class Window:
    """Measurements of a period of undisturbed training."""

    jobs: int
    nodes: int
    seconds: float
    cpu: dict[str, float]  # CPU seconds, by part
    took: list[float]  # seconds of each heartbeat
    failed: int
    arm: int  # ARM requests
    transactions: int
    kib: float

    @property
    def service_cpu(self) -> float:
        """CPU of api, reconciler and PostgreSQL together, in cores."""
        return sum(self.cpu[n] for n in ("api", "reconciler", "postgres")) / self.seconds


@dataclass(kw_only=True)
class ScaleFindings:
    """All measurements; None where the run did not reach them."""

    bare_tps: float | None = None
    windows: list[Window] = field(default_factory=list)
    submitted: list[tuple[int, float]] = field(default_factory=list)  # jobs, seconds
    kib_empty: float = 0.0
    flood: tuple[int, float, dict[str, float]] | None = None  # heartbeats, seconds, CPU
    burst: tuple[int, float, dict[str, float]] | None = None  # evictions, seconds, CPU
    decided_p99: float | None = None  # seconds from a job's first notice to the decision
    cancel: tuple[int, float, float, dict[str, float]] | None = None  # jobs, asked, over, CPU


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Connections and arguments of a run."""

    stack: ScaleStack
    api: httpx.AsyncClient
    database: psycopg.AsyncConnection[Any]
    options: ScaleOptions
    print_line: Callable[[str], None]

    async def select_number(self, query: str, *values: object) -> int:
        """Return a number that a query selects."""
        row = await (await self.database.execute(query, values)).fetchone()
        assert row is not None
        return int(row[0])


async def run(
    stack: ScaleStack,
    options: ScaleOptions,
    findings: ScaleFindings,
    print_line: Callable[[str], None],
) -> None:
    """Run all steps; ``findings`` is filled up to the point of a failure."""
    findings.bare_tps = await asyncio.to_thread(
        bare.commits, stack.data, options.nodes, options.seconds
    )
    print_line(f"bare PostgreSQL: {findings.bare_tps:.0f} commits/s")
    async with (
        stack.api_client(timeout=300) as api,
        await psycopg.AsyncConnection.connect(stack.database, autocommit=True) as database,
    ):
        bench = Bench(
            stack=stack, api=api, database=database, options=options, print_line=print_line
        )
        await _measure(bench, findings)


async def _measure(bench: Bench, findings: ScaleFindings) -> None:
    stack, options = bench.stack, bench.options
    body = await stack.job_request(bench.api, max(options.nodes // options.jobs, 1))
    findings.kib_empty = stack.kib()
    ids: list[str] = []
    for jobs in options.stages:
        ids += await _submit(bench, body, jobs - len(ids), findings)
        await _wait_for_training(bench, jobs * options.nodes // options.jobs)
        findings.windows.append(await _measure_window(bench, jobs))
    findings.flood = await _flood(bench)
    findings.burst = await _burst(bench)
    findings.decided_p99 = await _decision_latency_p99(bench)
    # Otherwise recoveries would add to the CPU of the cancels.
    await _wait_for_training(bench, options.nodes)
    findings.cancel = await _cancel(bench, ids[:2000])


async def _submit(
    bench: Bench, body: dict[str, Any], count: int, findings: ScaleFindings
) -> list[str]:
    start = time.monotonic()
    ids: list[str] = []

    async def lane(share: int) -> None:
        for _ in range(share):
            job = await read_answer(bench.api.post("/v1/fine_tuning/jobs", json=body))
            ids.append(job["id"])

    await _lanes(lane, count)
    findings.submitted.append((count, time.monotonic() - start))
    bench.print_line(f"{count} jobs submitted in {findings.submitted[-1][1]:.1f} s")
    return ids


async def _lanes(lane: Callable[[int], Any], count: int) -> None:
    shares = [count // LANES + (n < count % LANES) for n in range(LANES)]
    await asyncio.gather(*(lane(share) for share in shares if share))


async def _wait_for_training(bench: Bench, nodes: int) -> None:
    deadline, start = time.monotonic() + FILL_SECONDS, time.monotonic()
    while (now := await bench.stack.fleet.call("training")) < nodes:
        if time.monotonic() > deadline:
            raise CannotMeasure(f"only {now} of {nodes} nodes train; see the logs")
        await asyncio.sleep(0.25)
    bench.print_line(f"{nodes} nodes train after {time.monotonic() - start:.1f} s")


async def _measure_window(bench: Bench, jobs: int) -> Window:
    stack = bench.stack
    await asyncio.sleep(min(bench.options.seconds, 5.0))  # let the start-up work end
    await stack.fleet.call("heartbeats")
    commits = "select xact_commit from pg_stat_database where datname = current_database()"
    arm, cpu, done = await _arm(stack), stack.cpu(), await bench.select_number(commits)
    start = time.monotonic()
    await asyncio.sleep(bench.options.seconds)
    seconds, after = time.monotonic() - start, stack.cpu()
    took, failed = await stack.fleet.call("heartbeats")
    window = Window(
        jobs=jobs,
        nodes=await stack.fleet.call("training"),
        seconds=seconds,
        cpu={name: after[name] - cpu[name] for name in after},
        took=took,
        failed=failed,
        arm=await _arm(stack) - arm,
        transactions=await bench.select_number(commits) - done,
        kib=stack.kib(),
    )
    bench.print_line(
        f"{window.nodes} nodes: {len(took) / seconds:.0f} heartbeats/s,"
        f" p99 {rounded(percentile(took, 99), 3)} s, {failed} failed,"
        f" CPU {window.service_cpu:.2f} s/s, ARM {window.arm / seconds:.1f}/s"
    )
    return window


async def _flood(bench: Bench) -> tuple[int, float, dict[str, float]]:
    before, start = bench.stack.cpu(), time.monotonic()
    sent = await bench.stack.fleet.call("flood", bench.options.seconds, 8 * LANES)
    seconds = time.monotonic() - start
    used = _difference(before, bench.stack.cpu())
    bench.print_line(f"flood: {sent / seconds:.0f} heartbeats/s")
    return sent, seconds, used


async def _burst(bench: Bench) -> tuple[int, float, dict[str, float]]:
    """Evict every node at once and wait until the next attempt of each job is created."""
    query = "select count(*) from attempts where number > 1"
    alive = await bench.select_number("select count(*) from attempts where state = 'running'")
    before, start = bench.stack.cpu(), time.monotonic()
    evicted = await bench.stack.fleet.call("evict", bench.options.nodes)
    while (now := await bench.select_number(query)) < alive:
        if time.monotonic() - start > BURST_SECONDS:
            raise CannotMeasure(f"only {now} of {alive} next attempts; see the logs")
        await asyncio.sleep(0.1)
    seconds, used = time.monotonic() - start, _difference(before, bench.stack.cpu())
    bench.print_line(f"{evicted} evictions: {alive} next attempts after {seconds:.1f} s")
    return evicted, seconds, used


async def _decision_latency_p99(bench: Bench) -> float | None:
    """Return the 99th percentile of seconds from a job's first notice to the service's decision.

    Both are events, which the service's processes date.
    """
    query = """
    select percentile_cont(0.99) within group (order by extract(epoch from decided.at - first.at))
    from (select job_id, min(at) as at from events where code = 'node.eviction_notice'
      group by job_id) first
    join (select job_id, min(at) as at from events
      where code in ('generation.halted', 'attempt.terminating') group by job_id) decided
      using (job_id)
    """
    row = await (await bench.database.execute(query)).fetchone()
    return None if row is None or row[0] is None else float(row[0])


async def _cancel(bench: Bench, ids: Sequence[str]) -> tuple[int, float, float, dict[str, float]]:
    """Cancel jobs; measure the seconds until all are answered, and until all are cancelled."""
    remaining = list(ids)

    async def lane(share: int) -> None:
        for _ in range(share):
            await read_answer(bench.api.post(f"/v1/fine_tuning/jobs/{remaining.pop()}/cancel"))

    before, start = bench.stack.cpu(), time.monotonic()
    await _lanes(lane, len(ids))
    accepted = time.monotonic() - start
    query = "select count(*) from jobs where state = 'cancelled'"
    while (now := await bench.select_number(query)) < len(ids):
        if time.monotonic() - start > BURST_SECONDS:
            raise CannotMeasure(f"only {now} of {len(ids)} are cancelled; see the logs")
        await asyncio.sleep(0.1)
    seconds = time.monotonic() - start
    bench.print_line(f"{len(ids)} jobs cancelled after {seconds:.1f} s (asked: {accepted:.1f} s)")
    return len(ids), accepted, seconds, _difference(before, bench.stack.cpu())


async def _arm(stack: ScaleStack) -> int:
    return sum((await stack.world.call("bench.arm")).values())


def _difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}
