"""A database as after a year, and what PostgreSQL reads of it for a statement: its own plans."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.integration.db.rows import add_attempt, add_job
from tests.world import SPOT

# What docs/operations.md says to grow with use, and the queue: jobs may rest in it for ever. Not
# `spot_prices`: they are as many as the places that were configured in 400 days.
LARGE = {"jobs", "attempts", "nodes", "events", "metrics", "generations", "ledger"}
LARGE |= {"checkpoints", "findings", "storage_ledger", "storage_meters", "tier_moves", "files"}
LARGE |= {"spot_bands", "bills", "queue"}
JOBS, OF_EACH = 2000, 5  # jobs over long ago, and rows of each kind for every one of them
RESTING = JOBS // 10  # jobs that were paused, and never resumed

# Rows of jobs are wide: what a user has sent is in them.
_JOBS = f"""
update jobs set request = jsonb_build_object('suffix', repeat('x', 1000));
insert into files select (jsonb_populate_record(f, jsonb_build_object('id', 'file-' || n))).*
from files f, generate_series(1, {JOBS}) n where f.id = 'f-job';
insert into jobs select (jsonb_populate_record(j, jsonb_build_object(
  'id', 'ftjob-00' || n, 'state', 'cancelled', 'finished_at', j.created_at,
  'training_file', 'file-' || n, 'collected_generation', 2147483647))).*
from jobs j, generate_series(1, {JOBS}) n where j.id = 'job';
insert into attempts select (jsonb_populate_record(a, jsonb_build_object(
  'id', 'att-of-' || n, 'job_id', 'ftjob-00' || n, 'state', 'ended', 'outcome', 'cancelled',
  'ended_at', a.created_at))).*
from attempts a, generate_series(1, {JOBS}) n where a.id = 'att-1';
insert into nodes (id, attempt_id, vm_id, name, address, boot_id, epoch, phase, registered_at,
  heard_at)
select 'node-' || n || '-' || k, 'att-of-' || n, 'vm-' || k, '', '', '', 1, 'running', now(), now()
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
insert into generations (job_id, number, attempt_id, content, opened_at)
select 'ftjob-00' || n, k, 'att-of-' || n, '{{}}', now()
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
insert into ledger (job_id, attempt_id, vm_id, started_at, ended_at, hourly, on_demand_hourly)
select 'ftjob-00' || n, 'att-of-' || n, 'vm-' || k, now(), now(), 1, 1
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
"""
_TOLD = f"""
insert into events (id, job_id, attempt_id, at, level, code, message)
select 'e-' || n || '-' || k, 'ftjob-00' || n, 'att-of-' || n, now(), 'info', 'attempt.running', ''
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into metrics (job_id, step, generation, loss, learning_rate, grad_norm, accuracy, tokens,
  seconds)
select 'ftjob-00' || n, k, 1, 1, 1, 1, 1, 1, 1
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into findings (job_id, path, node_id, attempt_id, generation, file, reason)
select 'ftjob-00' || n, 'checkpoints/' || k, 'node-' || n || '-1', 'att-of-' || n, 1, '', ''
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
"""
# Of the checkpoints the last one is there still; of one job in a hundred so are its bytes.
_STORED = f"""
insert into checkpoints (id, job_id, path, step, generation, kind, size, world_size, committed_at,
  dropped_at, manifest_sha256)
select 'ckpt-' || n || '-' || k, 'ftjob-00' || n, 'checkpoints/' || k, k, 1, 'periodic', 1, 1,
  now(), case when k < {OF_EACH} then now() end, '0'
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into storage_meters (id, began_at, due_at)
select 'ftjob-00' || n, :now, :now + (n - 1) * interval '1 minute'
from generate_series(1, {JOBS}) n;
insert into storage_ledger (job_id, tier, size, month, started_at, ended_at)
select 'ftjob-00' || n, 'hot', 1, 1, :now, case when k < {OF_EACH} or n % 100 > 0 then :now end
from generate_series(1, {JOBS}) n, generate_series(1, {OF_EACH}) k;
insert into tier_moves (id, job_id, path, tier, priority, charge, asked_at, ended_at, outcome)
select 'move-' || n || '-' || k, 'ftjob-00' || n, 'checkpoints/' || k, 'cool', 'standard', 1, :now,
  :now, 'done'
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
"""
_MARKET = f"""
insert into spot_bands (region, vm_size, since, seen_at, band)
select 'region-' || n % 20, 'size-' || n % 7, :now - n * interval '1 hour', :now, '0-5'
from generate_series(1, {JOBS}) n;
insert into spot_prices (region, vm_size, at, hourly, seen_at)
select 'region-' || n % 20, 'size-' || n % 7, :now - n * interval '1 hour', 1, :now
from generate_series(1, {JOBS}) n;
insert into bills (day, attempt_id, category, quantity, amount, seen_at)
select cast(:now as date) - n % 400, 'att-of-' || n, 'Storage ' || k, 1, 1, :now
from generate_series(1, {JOBS}) n, generate_series(1, 2) k;
"""
# One job waits for its turn, one waits for more than there is, and one has had its turn.
_QUEUE = f"""
insert into jobs select (jsonb_populate_record(j, jsonb_build_object(
  'id', 'ftjob-00p' || n, 'state', 'paused', 'due_at', 'infinity'))).*
from jobs j, generate_series(1, {RESTING}) n where j.id = 'job';
insert into generations (job_id, number, attempt_id, content, opened_at)
select 'ftjob-00p7', k, 'att-of-9', '{{}}', :now - interval '2 days' from generate_series(1, 2) k;
insert into queue (job_id, project_id, priority, gpus, wants)
select 'ftjob-00p' || n, 'p-job', 'normal', 8,
  (select jsonb_agg(jsonb_build_array('region-' || k, 96)) from generate_series(1, 30) k)
from generate_series(1, {RESTING}) n;
insert into jobs select (jsonb_populate_record(j, jsonb_build_object(
  'id', x, 'state', 'queued'))).*
from jobs j, unnest(array['waits', 'waits-long', 'admitted']) x where j.id = 'job';
insert into queue (job_id, project_id, priority, gpus, wants, waits_since, admitted_at)
values ('admitted', 'p-job', 'normal', 8, '[]', null, :now),
  ('waits', 'p-job', 'normal', 8, '[["{SPOT.region}", 96]]', :now, null),
  ('waits-long', 'p-job', 'normal', 8, '[["{SPOT.region}", 9600]]', :now, null);
insert into core_quotas (region, due_at, read_at, cores)
values ('{SPOT.region}', :now, :now + interval '1 day', 960);
"""


async def fill(conn: AsyncConnection, now: datetime) -> None:
    """Add a running job, and the rows of a year, most of which no query needs."""
    option: dict[str, float | None] = {
        "seconds_per_step": 1.0,
        "duration_p50": 10.0,
        "expected_evictions": 0.0,
    }
    option |= {"seconds_per_step_p10": 0.8, "seconds_per_step_p90": 1.2, "cadence": None}
    option |= {"recovery_seconds": 600.0, "checkpoint_seconds": 300.0, "verify_seconds": 0.0}
    await add_job(conn, now, state="running", plan={"options": [option]})
    await add_attempt(conn, now)
    for statement in f"{_JOBS}{_TOLD}{_STORED}{_MARKET}{_QUEUE}analyze".split(";"):
        if statement.strip():
            at = text(statement.replace(":now", "cast(:now as timestamptz)"))
            await conn.execute(at, {"now": now} if ":now" in statement else {})


class statements:  # noqa: N801 - reads as a function
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


async def read_whole(conn: AsyncConnection, statement: str, values: Any) -> list[str]:  # noqa: ANN401
    """Return the large tables that the statement would read from end to end."""
    return [
        node["Relation Name"]
        for node in _nodes(await _plan(conn, "format json", statement, values))
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    ]


async def rows_read(conn: AsyncConnection, statement: str, values: Any) -> int:  # noqa: ANN401
    """Rows that the statement reads of large tables, of use or not. It is run, and taken back."""
    columns = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    async with conn.begin_nested() as once:
        plan = await _plan(conn, "analyze, format json", statement, values)
        await once.rollback()
    return sum(
        int(sum(node.get(rows, 0) for rows in columns) * node["Actual Loops"])
        for node in _nodes(plan)
        if node.get("Relation Name") in LARGE
    )


async def _plan(conn: AsyncConnection, options: str, statement: str, values: Any) -> dict[str, Any]:  # noqa: ANN401
    raw = (await conn.get_raw_connection()).driver_connection
    assert raw is not None
    cursor = await raw.execute(f"explain ({options}) {statement}", values)
    (document,) = await cursor.fetchone()
    plan = document if isinstance(document, list) else json.loads(document)
    plan_node: dict[str, Any] = plan[0]["Plan"]
    return plan_node


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
