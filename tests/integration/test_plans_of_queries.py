"""With a year's rows no hot query reads a whole table: PostgreSQL's own plans say so."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import (
    attempt_facts,
    attempt_moves,
    attempts,
    bills,
    budgets,
    cadences,
    checkpoints,
    events,
    findings,
    generations,
    heartbeats,
    job_facts,
    jobs,
    leases,
    ledger,
    metrics,
    nodes,
    paces,
    project_costs,
    project_savings,
    pruning,
    tables,
    traces,
    turns,
)
from service.db.heartbeats import Progress
from service.db.keys import Caller
from service.db.pruning import Rows
from service.domain.fleet import Price
from service.domain.traces import place_of
from service.operations.jobs import Sending, sent_before
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job, generation
from tests.world import SPOT
from trainer.contract import Heartbeat, NodePhase

LARGE = {"jobs", "attempts", "nodes", "events", "metrics", "generations", "ledger"}
JOBS, OF_EACH = 2000, 5  # jobs over long ago, and rows of each kind for every one of them
BEAT = Heartbeat(epoch=1, seq=9, phase=NodePhase.RUNNING, generation=1, step=9, free_port=0)

_FILL = f"""
insert into jobs select (jsonb_populate_record(j, jsonb_build_object(
  'id', 'ftjob-00' || n, 'state', 'cancelled', 'finished_at', j.created_at))).*
from jobs j, generate_series(1, {JOBS}) n where j.id = 'job';
insert into attempts select (jsonb_populate_record(a, jsonb_build_object(
  'id', 'att-of-' || n, 'job_id', 'ftjob-00' || n, 'state', 'ended', 'outcome', 'cancelled',
  'ended_at', a.created_at))).*
from attempts a, generate_series(1, {JOBS}) n where a.id = 'att-1';
insert into nodes (id, attempt_id, vm_id, name, address, boot_id, epoch, phase, registered_at,
  heard_at)
select 'node-' || n || '-' || k, 'att-of-' || n, 'vm-' || k, '', '', '', 1, 'running', now(), now()
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
insert into events (id, job_id, attempt_id, at, level, code, message)
select 'e-' || n || '-' || k, 'ftjob-00' || n, 'att-of-' || n, now(), 'info', 'attempt.running', ''
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into metrics (job_id, step, generation, loss, learning_rate, grad_norm, accuracy, tokens,
  seconds)
select 'ftjob-00' || n, k, 1, 1, 1, 1, 1, 1, 1
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into generations (job_id, number, attempt_id, content, opened_at)
select 'ftjob-00' || n, k, 'att-of-' || n, '{{}}', now()
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
insert into ledger (job_id, attempt_id, vm_id, started_at, ended_at, hourly, on_demand_hourly)
select 'ftjob-00' || n, 'att-of-' || n, 'vm-' || k, now(), now(), 1, 1
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
analyze;
"""

Query = Callable[[AsyncConnection, Clock], Awaitable[object]]


async def beat(conn: AsyncConnection, clock: Clock) -> None:
    await heartbeats.beat(conn, {"node-7-1": BEAT, "node-8-1": BEAT}, clock())


async def progressed(conn: AsyncConnection, clock: Clock) -> None:
    await heartbeats.progressed(
        conn, [Progress(job_id="ftjob-007", generation=1, step=5, news={})], clock()
    )


async def claim_attempts(conn: AsyncConnection, clock: Clock) -> None:
    await attempts.claim_due(conn, clock(), 100)


async def claim_jobs(conn: AsyncConnection, clock: Clock) -> None:
    await jobs.claim_due(conn, clock(), 100)


async def begin(conn: AsyncConnection, clock: Clock) -> None:
    begun = replace(generation(3, [], "att-of-7"), job_id="ftjob-007")
    await generations.begin_all(conn, [begun], (), clock())


async def meter(conn: AsyncConnection, clock: Clock) -> None:
    price = Price(hourly=Decimal(1), on_demand_hourly=Decimal(1))
    of_7 = ledger.Exist(
        job_id="ftjob-007", attempt_id="att-of-7", vm_ids=["vm-1"], price=price, since=clock()
    )
    await ledger.meter(conn, [of_7], clock())


async def evicted(conn: AsyncConnection, clock: Clock) -> None:
    row = await attempts.find(conn, "att-of-7")
    assert row is not None
    await attempt_moves.evicted(conn, [row])


async def look(conn: AsyncConnection, clock: Clock) -> None:
    row = await attempts.find(conn, "att-1")
    assert row is not None
    await attempt_facts.of(conn, [(row, None)])


async def seen_of_spot(conn: AsyncConnection, clock: Clock) -> None:
    """Of a day that begins long after all of these were over."""
    wanted = traces.Wanted(places=[place_of(SPOT)], project_id="p-job")
    since, until = (clock() + timedelta(days=days) for days in (8, 9))
    await traces.places(conn, since, until)
    await traces.held(conn, wanted, since, until)
    await traces.sights(conn, wanted, since, until)


async def money_of_a_project(conn: AsyncConnection, clock: Clock) -> None:
    """Of days that begin long after all of these were over."""
    since, until = (clock() + timedelta(days=days) for days in (8, 9))
    await project_costs.by_bucket(conn, "p-job-of-nobody", since, until, 86_400, until)
    await bills.metered(conn, "p-job", since.date(), until.date(), until)


async def money_of_all_projects(conn: AsyncConnection, clock: Clock) -> None:
    since, until = (clock() + timedelta(days=days) for days in (8, 9))
    await project_savings.by_project(conn, since, until, after="p-job", limit=20)


async def sent_again(conn: AsyncConnection, clock: Clock) -> None:
    caller = Caller(api_key_id="k-job", project_id="p-job")
    sending = Sending(caller=caller, body_sha256="x", idempotency_key=None, is_retry=True)
    await sent_before(conn, sending, clock())


async def spent_lately(conn: AsyncConnection, clock: Clock) -> None:
    """Since long after all of these were over but one."""
    since, now = (clock() + timedelta(days=days) for days in (8, 9))
    await budgets.spent_by_project(conn, "p-job", since, now)


# What is read of a project with many jobs, most of them over long ago.
OF_A_PROJECT: dict[str, Query] = {
    "a request that was sent before": sent_again,
    "how fast its jobs were": lambda conn, _: paces.recent(conn, "p-job"),
    "what it has spent": spent_lately,
}
FEW = JOBS // 2  # rows
HOT: dict[str, Query] = {
    "a heartbeat": beat,
    "what heartbeats measured": progressed,
    "a long poll": lambda conn, _: heartbeats.orders(conn, [("node-7-1", 0)]),
    "heartbeats with news": lambda conn, _: heartbeats.speakers(conn, ["node-7-1"]),
    "a generation begins": begin,
    "what is known before it does": lambda conn, _: findings.before(conn, ["ftjob-007"]),
    "checkpoints that exist": lambda conn, _: checkpoints.kept(conn, ["ftjob-007"]),
    "claiming attempts": claim_attempts,
    "claiming jobs": claim_jobs,
    "a hint": lambda conn, clock: leases.hint(conn, tables.attempts, "att-of-7", clock()),
    "attempts that live": lambda conn, _: attempts.live_ids(conn),
    "what attempts saw of Spot": seen_of_spot,
    "what trains": lambda conn, _: cadences.training(conn),
    "what holds cores": lambda conn, _: turns.holding(conn, [SPOT.region]),
    "the last eviction": lambda conn, clock: cadences.evicted(conn, clock()),
    "evictions somewhere": lambda conn, clock: cadences.lived(conn, [place_of(SPOT)], clock()),
    "nodes of an attempt": lambda conn, _: nodes.of_attempt(conn, "att-of-7"),
    "the newest generation": lambda conn, _: generations.current(conn, "att-1"),
    "machine time": meter,
    "machines that were taken": evicted,
    "a page of jobs": lambda conn, clock: job_facts.page(
        conn, "p-job-of-nobody", clock(), after=None, limit=20, metadata={}
    ),
    "a page of events": lambda conn, _: events.newest(conn, "ftjob-007", after="e-7-5", limit=20),
    "a look at attempts": look,
    "a page of metrics": lambda conn, _: metrics.series(
        conn, "ftjob-007", from_step=0, to_step=99, limit=20
    ),
    "what a project costs": money_of_a_project,
    "what all projects save": money_of_all_projects,
    "pruning events": lambda conn, clock: pruning.due(conn, Rows.EVENTS, clock(), 100),
    "pruning metrics": lambda conn, clock: pruning.due(conn, Rows.METRICS, clock(), 100),
}


@pytest.fixture
async def full(engine: AsyncEngine, clock: Clock) -> AsyncIterator[AsyncConnection]:
    """A database with a year's rows, of which few are of any use today; taken back afterwards."""
    async with engine.connect() as conn:
        option = {"seconds_per_step": 1.0, "duration_p50": 10.0, "expected_evictions": 0.0}
        await add_job(conn, clock(), state="running", plan={"options": [option]})
        await add_attempt(conn, clock())
        for statement in _FILL.split(";"):
            if statement.strip():
                await conn.execute(text(statement))
        yield conn
        await conn.rollback()


async def test_no_hot_query_reads_a_large_table_whole(full: AsyncConnection, clock: Clock) -> None:
    clock.advance(seconds=timedelta(days=1).total_seconds())
    whole = {}
    for name, query in HOT.items():
        with _statements(full) as sent:
            await query(full, clock)
        assert sent, name
        found = [t for s in sent for t in await _read_whole(full, *s)]
        if found:
            whole[name] = found

    assert whole == {}
    without_index = ("select id from events where message = %(m)s", {"m": "x"})
    assert await _read_whole(full, *without_index) == ["events"]  # it would have been found out


async def test_what_is_asked_of_a_project_does_not_read_all_that_it_ever_did(
    full: AsyncConnection, clock: Clock
) -> None:
    many = {}
    for name, query in OF_A_PROJECT.items():
        with _statements(full) as sent:
            await query(full, clock)
        assert sent, name
        if (rows := sum([await _rows_read(full, *s) for s in sent])) > FEW:
            many[name] = rows

    assert many == {}
    everything = ("select count(*) from jobs where project_id = %(p)s", {"p": "p-job"})
    assert await _rows_read(full, *everything) > FEW


class _statements:  # noqa: N801 - reads as a function
    """What is sent to the database meanwhile, with its values."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._engine = conn.sync_connection
        self._sent: list[tuple[str, Any]] = []

    def __enter__(self) -> list[tuple[str, Any]]:
        event.listen(self._engine, "before_cursor_execute", self._note)
        return self._sent

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "before_cursor_execute", self._note)

    def _note(self, *called: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        statement, values = called[2], called[3]
        if not statement.lstrip().lower().startswith("select pg_notify"):
            self._sent.append((statement, values))


async def _read_whole(conn: AsyncConnection, statement: str, values: Any) -> list[str]:  # noqa: ANN401
    """The large tables that the statement would read from end to end."""
    return [
        node["Relation Name"]
        for node in _nodes(await _plan(conn, "format json", statement, values))
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    ]


async def _rows_read(conn: AsyncConnection, statement: str, values: Any) -> int:  # noqa: ANN401
    """Rows that the statement reads of large tables, of use or not."""
    read = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        int(sum(node.get(rows, 0) for rows in read) * node["Actual Loops"])
        for node in _nodes(await _plan(conn, "analyze, format json", statement, values))
        if node.get("Relation Name") in LARGE
    )


async def _plan(conn: AsyncConnection, how: str, statement: str, values: Any) -> dict[str, Any]:  # noqa: ANN401
    raw = (await conn.get_raw_connection()).driver_connection
    assert raw is not None
    cursor = await raw.execute(f"explain ({how}) {statement}", values)
    (document,) = await cursor.fetchone()
    plan = document if isinstance(document, list) else json.loads(document)
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
