"""Run of the same job twice on one local stack: elastic, and with a fixed number of nodes.

Each run loses one machine without notice and then one with notice. The second eviction waits
until all nodes train again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from bench.elastic import lives
from bench.elastic.lives import JobHistory, MachineLoss
from bench.ports import free
from bench.recovery.jobs import sample_file
from bench.report import CannotMeasure
from rekindle.local import faults
from rekindle.local.layout import TINY_MODEL, StackLayout
from rekindle.local.running_stack import StackInfo
from rekindle.local.stack import run_stack
from rekindle.local.state_folder import StackPorts, StateFolder

NODES, LEAST = 4, 2
BATCH, MICRO_BATCH = 24, 2  # 3 micro-steps on four nodes, 4 on three, 6 on two
ROWS = 600
STEPS_AN_EPOCH = ROWS // BATCH
BEFORE_STEPS = 60  # steps on all nodes before an eviction
TIMEOUT_SECONDS = 900.0
ENDED_STATES = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Arguments of the command line."""

    epochs: int
    boot_seconds: float | None  # None: the emulator's default


@dataclass(frozen=True, kw_only=True)
class ElasticTools:
    """Connections that a run uses."""

    stack: StackInfo
    api: httpx.AsyncClient
    database: psycopg.AsyncConnection[Any]
    print_line: Callable[[str], None]


async def run(
    plan: ElasticOptions, folder: Path, port: int | None, print_line: Callable[[str], None]
) -> list[JobHistory]:
    """Run both jobs and return their histories: elastic first, then rigid."""
    ports = StackPorts.starting_at(port or free(4))
    layout = StackLayout(StateFolder(folder), ports, create_seconds=plan.boot_seconds)
    print_line(f"starting a stack in {folder}")
    async with run_stack(layout, lambda _: None), _open_tools(folder, print_line) as tools:
        file = await _upload(tools, folder)
        return [await _run_job(tools, plan, file, elastic=elastic) for elastic in (True, False)]


@asynccontextmanager
async def _open_tools(
    folder: Path, print_line: Callable[[str], None]
) -> AsyncIterator[ElasticTools]:
    facts = StackInfo.read(folder)
    async with AsyncExitStack() as ends:
        api = await ends.enter_async_context(
            httpx.AsyncClient(
                base_url=f"{facts.api_url}/v1",
                headers={"Authorization": f"Bearer {facts.api_key}"},
                trust_env=False,
                timeout=30,
            )
        )
        url = facts.database_url.replace("+psycopg", "")
        database = await psycopg.AsyncConnection.connect(url, autocommit=True)
        ends.push_async_callback(database.close)
        yield ElasticTools(stack=facts, api=api, database=database, print_line=print_line)


async def _upload(tools: ElasticTools, folder: Path) -> str:
    answer = await tools.api.post("/files", **await sample_file(folder, ROWS))
    return str(answer.raise_for_status().json()["id"])


async def _run_job(
    tools: ElasticTools, plan: ElasticOptions, file: str, *, elastic: bool
) -> JobHistory:
    name = "elastic" if elastic else "rigid"
    job = await _submit(tools, plan, file, elastic=elastic)
    tools.print_line(f"{name}: {job}, {plan.epochs * STEPS_AN_EPOCH} steps on {NODES} nodes")
    strikes: list[MachineLoss] = []
    generation = 0
    for noticed in (False, True):
        generation, attempt, step = await _full_world(tools, job, after=generation)
        if generation == 0:
            tools.print_line("  it ended before all nodes trained again: use more --epochs")
            break
        strikes.append(await _strike(tools, attempt, generation, noticed=noticed))
        preposition = "with" if noticed else "without"
        tools.print_line(f"  after step {step}: a machine is taken {preposition} notice")
    await _ended(tools, job)
    tools.print_line("  it has succeeded, and its machines are gone")
    return await lives.read(tools.database, job, strikes, elastic=elastic, nodes=NODES)


async def _submit(tools: ElasticTools, plan: ElasticOptions, file: str, *, elastic: bool) -> str:
    hyper = {"n_epochs": plan.epochs, "batch_size": BATCH}
    training = {
        "max_seq_len": 64,
        "learning_rate": 0.001,
        "checkpoint_seconds": 3,
        "micro_batch": MICRO_BATCH,
        "zero_stage": 2,
    }
    allowed = {"elastic": {"min_nodes": LEAST}} if elastic else {}
    body = {
        "model": TINY_MODEL,
        "training_file": file,
        "seed": 5,
        "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
        "infrastructure": {"nodes": NODES, **allowed},
        "training": training,
    }
    answer = await tools.api.post("/fine_tuning/jobs", json=body)
    return str(answer.raise_for_status().json()["id"])


async def _full_world(tools: ElasticTools, job: str, *, after: int) -> tuple[int, str, int]:
    """Wait until all nodes have trained for a while in a generation after ``after``.

    Returns:
        Number of the generation, its attempt and its last step. The number is 0 when the job ended
        before.
    """
    latest = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < latest:
        row = await (await tools.database.execute(_NEWEST, [job])).fetchone()
        if row is not None and row[0] > after and row[2] == NODES and row[4] >= BEFORE_STEPS:
            return row[0], row[1], row[3]
        if await _state(tools, job) in ENDED_STATES:
            return 0, "", 0
        await asyncio.sleep(0.1)
    raise CannotMeasure(f"{job} did not come to train on {NODES} nodes")


async def _strike(
    tools: ElasticTools, attempt: str, generation: int, *, noticed: bool
) -> MachineLoss:
    victim = max(await faults.list_machines(tools.stack, attempt), key=lambda vm: vm.vm_id)
    started_at = time.time()
    await faults.evict_vm(tools.stack, victim, notice=noticed)
    at = started_at if noticed else time.time()
    return MachineLoss(noticed=noticed, at=at, attempt=attempt, generation=generation)


async def _ended(tools: ElasticTools, job: str) -> None:
    """Wait until the job ended and its attempts are over; fail unless it succeeded."""
    latest = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < latest:
        if await _state(tools, job) in ENDED_STATES and await _is_released(tools, job):
            break
        await asyncio.sleep(0.3)
    state = await _state(tools, job)
    if state != "succeeded":
        raise CannotMeasure(f"job {job} is {state}; what was to be measured needs its end")


async def _state(tools: ElasticTools, job: str) -> str:
    query = "select state from jobs where id = %s"
    row = await (await tools.database.execute(query, [job])).fetchone()
    assert row is not None, "the job was accepted"
    return str(row[0])


async def _is_released(tools: ElasticTools, job: str) -> bool:
    query = "select bool_and(state = 'ended') from attempts where job_id = %s"
    row = await (await tools.database.execute(query, [job])).fetchone()
    return bool(row and row[0])


_NEWEST = """
select g.number, g.attempt_id, jsonb_array_length(g.content->'members'),
       (select max(step) from metrics where job_id = g.job_id and generation = g.number),
       (select count(*) from metrics where job_id = g.job_id and generation = g.number)
from generations g where g.job_id = %s order by g.number desc limit 1"""
