"""One run of the benchmark: a local stack, the undisturbed twins, and then all planned kills."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import psutil
import psycopg

from bench.recovery import invariants
from bench.recovery.book import Book, JobOutcome, Strike
from bench.recovery.jobs import PAIR, SOLO, RecoveryJobs, Spec
from bench.recovery.observed import records
from bench.recovery.observed.blobs import Containers
from bench.recovery.observed.cluster import ClusterView
from bench.recovery.observed.records import JobRecord
from bench.recovery.observed.watch import Watch
from bench.recovery.phases import ENDED_STATES
from bench.recovery.plan import KillKind, plan
from bench.recovery.slot import JOB_SECONDS, RecoveryTools, Slot
from bench.recovery.stage import Stage
from bench.report import CannotMeasure
from rekindle.local.layout import StackLayout
from rekindle.local.parts import PartRunner
from rekindle.local.running_stack import VM_VARIABLE
from rekindle.local.stack import run_stack

SPECS = (SOLO, PAIR)
GRACE_SECONDS = 30.0  # seconds for deletions after the last job


async def run(
    book: Book,
    job_records: dict[str, JobRecord],
    layout: StackLayout,
    print_line: Callable[[str], None],
) -> None:
    """Run all kills; fill ``book``, and ``job_records`` with the service's record of each job.

    Both are filled up to the point of an interruption too.
    """
    print_line(f"starting a stack in {layout.state.path}")
    async with (
        run_stack(layout, lambda _: None) as crew,
        _open_tools(layout, book, print_line) as tools,
    ):
        database = tools.jobs.database
        try:
            await _run_beside(crew, _measure(tools, layout))
        finally:
            for job in tools.watch.jobs:
                job_records[job] = await records.read(database, job)


@asynccontextmanager
async def _open_tools(
    layout: StackLayout, book: Book, print_line: Callable[[str], None]
) -> AsyncIterator[RecoveryTools]:
    key = (layout.state / "api-key").read_text().strip()
    url = layout.service_settings()["REKINDLE_DATABASE_URL"].replace("+psycopg", "")
    async with AsyncExitStack() as ends:
        api = await ends.enter_async_context(
            httpx.AsyncClient(
                base_url=layout.api_url,
                headers={"Authorization": f"Bearer {key}"},
                trust_env=False,
            )
        )
        database = await psycopg.AsyncConnection.connect(url, autocommit=True)
        ends.push_async_callback(database.close)
        containers = Containers(layout.storage)
        ends.callback(containers.close)
        view = ClusterView(layout, database)
        ends.push_async_callback(view.close)
        yield RecoveryTools(
            view=view,
            watch=Watch(view, containers, book),
            jobs=RecoveryJobs(api, database, containers),
            containers=containers,
            stage=Stage(layout, api),
            book=book,
            print_line=print_line,
        )


async def _run_beside(crew: PartRunner, work: Any) -> None:  # noqa: ANN401 - a coroutine
    """Run the work, and fail when the stack's runner fails."""
    tasks = [asyncio.ensure_future(work), asyncio.create_task(crew.wait_for_failure())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measure(tools: RecoveryTools, layout: StackLayout) -> None:
    await tools.jobs.upload(layout.state.path)
    tools.watch.callbacks.append(lambda: _report_outcomes(tools))
    watch_tasks = [
        asyncio.create_task(tools.watch.run()),
        asyncio.create_task(_refresh_states(tools)),
    ]
    try:
        strike_task = asyncio.create_task(_strike_all(tools))
        await asyncio.wait([strike_task, *watch_tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (strike_task, *watch_tasks):
            if task.done():
                task.result()
    finally:
        for task in (strike_task, *watch_tasks):
            task.cancel()
        await asyncio.gather(strike_task, *watch_tasks, return_exceptions=True)
    await tools.watch.wait_for_checks()
    tools.book.leaked = await _find_leaks(tools, layout)


async def _strike_all(tools: RecoveryTools) -> None:
    tools.print_line("the undisturbed twins")
    twins = await asyncio.gather(*(_twin(tools, spec) for spec in SPECS))
    tools.book.twins += twins
    planned = plan(tools.book.kills, tools.book.seed, len(SPECS))
    slots = [
        Slot(number=n, spec=spec, twin=twin, tools=tools)
        for n, (spec, twin) in enumerate(zip(SPECS, twins, strict=True))
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for slot, kills in zip(slots, planned, strict=True):
                group.create_task(slot.run(kills))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _twin(tools: RecoveryTools, spec: Spec) -> JobOutcome:
    job = await tools.jobs.submit(spec, f"twin-{spec.name}")
    tools.watch.jobs.add(job)
    await tools.jobs.ended(job, JOB_SECONDS)
    outcome = await tools.jobs.outcome(job)
    if outcome.state != "succeeded":
        raise CannotMeasure(f"the undisturbed job {job} is {outcome.state}: {outcome.error}")
    tools.print_line(
        f"  {spec.name}: {job}, {len(outcome.losses)} steps, {outcome.parameters_sha256}"
    )
    return outcome


async def _refresh_states(tools: RecoveryTools) -> None:
    """Refresh the states of all jobs continuously."""
    while True:
        tools.stage.states = await tools.jobs.states(tools.watch.jobs)
        await asyncio.sleep(0.1)


def _report_outcomes(tools: RecoveryTools) -> None:
    """Complete the records of kills whose outcome is known, and print a line for each."""
    for strike in tools.book.strikes:
        if not strike.is_printed and _record_outcome(tools, strike):
            strike.is_printed = True
            tools.print_line(_line(tools.book, strike))


def _record_outcome(tools: RecoveryTools, strike: Strike) -> bool:
    """Fill in the outcome of a kill; return whether it is complete."""
    if strike.kind is KillKind.SERVICE:
        return strike.back_at is not None
    after = tools.book.generation_after(strike)
    if after is None:
        return tools.stage.states.get(strike.job, "") in ENDED_STATES
    generation = tools.book.generations.get((strike.job, strike.generation))
    reached = max(strike.step, generation.last_step) if generation else 0
    strike.lost_steps = max(reached - after.loaded_step, 0)
    strike.first_step_at, strike.next_generation = after.first_step_at, after.number
    return True


def _line(book: Book, strike: Strike) -> str:
    reported = sum(s.is_printed for s in book.strikes)
    until = strike.back_at or strike.first_step_at
    seconds = "job ended" if until is None else f"{until - strike.at:5.1f} s"
    lost_text = "" if strike.lost_steps is None else f"lost {strike.lost_steps} steps"
    late = "" if strike.phase is strike.kill.phase else f" (planned: {strike.kill.phase})"
    where = f"{strike.job} at step {strike.step}"
    return (
        f"{reported}/{book.kills} {strike.kind} in {strike.phase}{late}, "
        f"{where}: {lost_text} {seconds}"
    )


async def _find_leaks(tools: RecoveryTools, layout: StackLayout) -> list[str]:
    """Return what still exists after a grace period for deletions."""
    latest = asyncio.get_running_loop().time() + GRACE_SECONDS
    while True:
        snapshot = await tools.watch.take_snapshot()
        leaks = invariants.leaked(snapshot, _vm_processes(layout))
        if not leaks or asyncio.get_running_loop().time() > latest:
            return leaks
        await asyncio.sleep(0.5)


def _vm_processes(layout: StackLayout) -> list[str]:
    """Return the running processes that were started on this stack's machines."""
    lines, disks = [], str(layout.state / "azure" / "vms")
    for process in psutil.process_iter():
        try:
            environment, line = process.environ(), " ".join(process.cmdline())
            is_ours = disks in line or disks in environment.get("HOME", "")
            if VM_VARIABLE in environment and is_ours:
                lines.append(f"{process.pid} {line[:120]}")
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to another user
    return lines
