"""With a year's rows no hot query reads a whole table: PostgreSQL's own plans say so."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import (
    attempt_facts,
    attempt_moves,
    attempts,
    generations,
    heartbeats,
    nodes,
)
from service.db.attempts.heartbeats import GenerationProgress
from service.db.core import leases
from service.db.files import files
from service.db.jobs import events, job_lists, jobs, step_metrics, step_times
from service.db.jobs.step_metrics import StepRange
from service.db.money import (
    bills,
    budgets,
    ledger,
    price_doubts,
    project_costs,
    project_savings,
    storage_cost,
)
from service.db.monitoring import event_pruning, state_metrics
from service.db.monitoring.event_pruning import PrunedTable
from service.db.projects.keys import Caller
from service.db.queue import queue, queue_forecast_rows, quotas
from service.db.schema import tables
from service.db.spot import capacity_observations, market
from service.db.storage import checkpoint_fault_reports, checkpoints, retention, tier_moves
from service.domain.cloud.fleet import Price
from service.domain.money.storage_cost import TierLevel, level_changes
from service.domain.queue.admission import ProjectQuota
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.spot.market import EvictionBand
from service.domain.storage.access_tiers import AccessTier
from service.domain.storage.checkpoint_faults import CheckpointFinding
from service.operations.jobs.jobs import RequestIdentity, find_earlier
from service.operations.monitoring import audit
from service.operations.queue import admission
from service.reconciler.sweeps import late_billing
from tests.clock import Clock
from tests.integration.db.rows import generation
from tests.integration.db.year import JOBS, fill, read_whole, rows_read, statements
from tests.world import PRICE, SPOT

BAND = SpotPool("region-1", "size-1")

Query = Callable[[AsyncConnection, Clock], Awaitable[object]]


async def beat(conn: AsyncConnection, clock: Clock) -> None:
    locked = await heartbeats.lock_nodes(conn, ["node-7-1", "node-8-1"])
    await heartbeats.save(conn, [(s.record, "") for s in locked.values()], clock())


async def progressed(conn: AsyncConnection, clock: Clock) -> None:
    await heartbeats.record_progress(
        conn, [GenerationProgress(job_id="ftjob-007", generation=1, step=5, changes={})], clock()
    )


async def begin(conn: AsyncConnection, clock: Clock) -> None:
    new_generation = replace(generation(3, [], "att-of-7"), job_id="ftjob-007")
    await generations.begin_all(conn, [new_generation], (), clock())


async def meter(conn: AsyncConnection, clock: Clock) -> None:
    price = Price(hourly=Decimal(1), on_demand_hourly=Decimal(1))
    of_7 = ledger.ExistingMachines(
        job_id="ftjob-007", attempt_id="att-of-7", vm_ids=["vm-1"], price=price, since=clock()
    )
    await ledger.meter(conn, [of_7], clock())


async def evicted(conn: AsyncConnection, clock: Clock) -> None:
    row = await attempts.find(conn, "att-of-7")
    assert row is not None
    await attempt_moves.count_evictions(conn, [row])


async def look(conn: AsyncConnection, clock: Clock) -> None:
    row = await attempts.find(conn, "att-1")
    assert row is not None
    await attempt_facts.read_inputs(conn, [(row, None)])


async def seen_of_spot(conn: AsyncConnection, clock: Clock) -> None:
    """Of a day that begins long after all of these were over."""
    pools = [spot_pool_of(SPOT)]
    since, until = (clock() + timedelta(days=days) for days in (8, 9))
    await capacity_observations.spot_pools(conn, since, until)
    await capacity_observations.held_machines(conn, pools, since, until)
    await capacity_observations.observations(conn, pools, since, until)


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
    identity = RequestIdentity(caller=caller, body_sha256="x", idempotency_key=None, is_retry=True)
    await find_earlier(conn, identity, clock())


async def spent_lately(conn: AsyncConnection, clock: Clock) -> None:
    """Since long after all of these were over but one."""
    since, now = (clock() + timedelta(days=days) for days in (8, 9))
    await budgets.spent_by_project(conn, "p-job", since, now)


async def costs_by_day(conn: AsyncConnection, clock: Clock) -> None:
    """Read the project's costs of two days, by day."""
    since, until = (clock() + timedelta(days=days) for days in (8, 10))
    await project_costs.by_bucket(conn, "p-job", since, until, 86_400, until)


async def queue_pass(conn: AsyncConnection, clock: Clock) -> None:
    """All of `service/reconciler/jobs/admission.py`; one of those that wait is let in."""
    assert await quotas.claim_region(conn, SPOT.region, clock(), timedelta(minutes=1))
    await quotas.record_usage(conn, SPOT.region, 960, 192, clock())
    assert await queue.acquire_lease(conn, "me", clock(), timedelta(seconds=15))
    assert await admission.admit_waiting_jobs(conn, ProjectQuota(max_jobs=10), clock()) == 1


async def sweep_orphans(conn: AsyncConnection, clock: Clock) -> None:
    await attempts.live_ids(conn)
    await ledger.open_after_the_end(conn)
    row = await attempts.find(conn, "att-of-7")
    assert row is not None
    machines = replace(late_billing._billable_machines(row, None, clock()), vm_ids=["vm-late"])
    assert await late_billing._write(conn, row, machines, clock())


async def sweep_checkpoints(conn: AsyncConnection, clock: Clock) -> None:
    due_jobs = await retention.due(conn, before=clock(), after="", limit=100)
    assert due_jobs
    await retention.record_collected(conn, due_jobs[0])


async def meter_storage(conn: AsyncConnection, clock: Clock) -> None:
    (claim,) = await storage_cost.claim_due(conn, clock(), 1)
    before = await storage_cost.open_levels(conn, claim.row_id)
    levels = {AccessTier.COOL: TierLevel(size=1, month=Decimal(1))}
    changes = level_changes(before, levels, clock(), clock())
    assert changes
    await storage_cost.record(conn, claim, changes, clock(), clock())


async def prices_of_what_runs(conn: AsyncConnection, clock: Clock) -> None:
    assert await attempts.held_offerings(conn) == [SPOT]
    await attempts.reprice(conn, SPOT, PRICE)
    await ledger.reprice(conn, "att-1", PRICE, clock())


async def folder(conn: AsyncConnection, clock: Clock) -> None:
    await tier_moves.folders(conn, "ftjob-007")
    await tier_moves.mark(conn, "ftjob-007", "checkpoints/1")
    await tier_moves.open_for(conn, "ftjob-007", "checkpoints/1")
    await tier_moves.open_of(conn, "ftjob-007")
    await checkpoints.known_paths(conn, "ftjob-007", ["checkpoints/1"])
    await checkpoints.match(conn, "ftjob-007", {"checkpoints/1": "recent"}, clock())
    await checkpoints.newest(conn, "ftjob-007", after="ckpt-7-5", limit=20)


async def complain(conn: AsyncConnection, clock: Clock) -> None:
    finding = CheckpointFinding(
        node_id="node-7-1", attempt_id="att-of-7", generation=2, file="f", reason=""
    )
    await checkpoint_fault_reports.add(conn, "ftjob-007", "checkpoints/5", finding)
    await checkpoint_fault_reports.open_of(conn, "ftjob-007")
    assert await checkpoints.condemn(conn, "ftjob-007", "checkpoints/5", "no node can load it")


async def file(conn: AsyncConnection, clock: Clock) -> None:
    """Until it is deleted, and its bytes are."""
    assert await files.lock(conn, "p-job", "file-7")
    await files.in_use(conn, "file-7")
    await files.mark_deleted(conn, "file-7", clock())
    assert await files.was_deleted(conn, "p-job", "file-7")
    assert await files.dead_and_unknown(conn, ["file-7", "x"]) == (["file-7"], ["x"])
    await files.page(conn, "p-job", purpose="fine-tune", after="file-8", limit=20, ascending=False)


# What is read of a project with many jobs, most of them over long ago.
OF_A_PROJECT: dict[str, Query] = {
    "a request that was sent before": sent_again,
    "how fast its jobs were": lambda conn, _: step_times.recent(conn, "p-job"),
    "what it has spent": spent_lately,
    "what it costs by day": costs_by_day,
}
FEW = JOBS // 2  # rows
# What looks for the few things that are to be done among all that ever was.
SWEEPS: dict[str, Query] = {
    "a pass of the queue": queue_pass,
    "the sweep of checkpoints": sweep_checkpoints,
    "the sweep of orphans": sweep_orphans,
    "the meters of storage": meter_storage,
    "the audit": lambda conn, _: audit._find_owners(conn, {"att-of-7", "att-of-8"}),
    "moves between tiers": lambda conn, clock: tier_moves.claim_due(conn, clock(), 20),
    "prices of what runs": prices_of_what_runs,
    "pruning events": lambda conn, clock: event_pruning.jobs_to_prune(
        conn, PrunedTable.EVENTS, clock(), 100
    ),
    "pruning metrics": lambda conn, clock: event_pruning.jobs_to_prune(
        conn, PrunedTable.METRICS, clock(), 100
    ),
    "a scrape of the metrics": lambda conn, clock: state_metrics.read_samples(conn, clock()),
    "pruning what Azure told": lambda conn, clock: event_pruning.delete_market_rows(
        conn, clock() - timedelta(400)
    ),
}
HOT: dict[str, Query] = {
    "heartbeats": beat,
    "what heartbeats measured": progressed,
    "a long poll": lambda conn, _: heartbeats.standing_directives(conn, [("node-7-1", 0)]),
    "a generation begins": begin,
    "what is known before it does": lambda conn, _: checkpoint_fault_reports.histories(
        conn, ["ftjob-007"]
    ),
    "checkpoints that exist": lambda conn, _: checkpoints.retained_paths(conn, ["ftjob-007"]),
    "claiming attempts": lambda conn, clock: attempts.claim_due(conn, clock(), 100),
    "claiming jobs": lambda conn, clock: jobs.claim_due(conn, clock(), 100),
    "a hint": lambda conn, clock: leases.enqueue(conn, tables.attempts, "att-of-7", clock()),
    "attempts that live": lambda conn, _: attempts.live_ids(conn),
    "what attempts saw of Spot": seen_of_spot,
    "how often attempts save": lambda conn, _: generations.save_histories(conn, ["att-of-7"]),
    "what holds cores": lambda conn, clock: queue_forecast_rows.core_holds(
        conn, [SPOT.region], clock()
    ),
    "nodes of an attempt": lambda conn, _: nodes.of_attempt(conn, "att-of-7"),
    "the newest generation": lambda conn, _: generations.current(conn, "att-1"),
    "machine time": meter,
    "machines that were taken": evicted,
    "a page of jobs": lambda conn, clock: job_lists.page(
        conn, "p-job-of-nobody", clock(), after=None, limit=20
    ),
    "a page of events": lambda conn, _: events.newest(conn, "ftjob-007", after="e-7-5", limit=20),
    "a look at attempts": look,
    "a page of metrics": lambda conn, _: step_metrics.series(
        conn, "ftjob-007", StepRange(from_step=0, to_step=99), limit=20
    ),
    "what a project costs": money_of_a_project,
    "what all projects save": money_of_all_projects,
    "bands of Spot": lambda conn, clock: market.save_bands(
        conn, {BAND: EvictionBand.TO_10}, clock()
    ),
    "what was paid last": lambda conn, clock: price_doubts.last_good_prices(
        conn, spot_pool_of(SPOT), clock()
    ),
    "prices of Spot": lambda conn, clock: market.prices(conn, [BAND], clock(), clock()),
    "where a checkpoint lies": folder,
    "what nodes complain of": complain,
    "a file": file,
    **SWEEPS,
}


@pytest.fixture
async def full(engine: AsyncEngine, clock: Clock) -> AsyncIterator[AsyncConnection]:
    """As after a year; taken back afterwards."""
    async with engine.connect() as conn:
        await fill(conn, clock())
        yield conn
        await conn.rollback()


async def test_no_hot_query_reads_a_large_table_whole(full: AsyncConnection, clock: Clock) -> None:
    clock.advance(seconds=timedelta(days=1).total_seconds())
    totals = {}
    for name, query in HOT.items():
        with statements(full) as queries:
            await query(full, clock)
        assert queries, name
        tables_read = [t for s in queries for t in await read_whole(full, *s)]
        if tables_read:
            totals[name] = tables_read

    assert totals == {}
    without_index = ("select id from events where message = %(m)s", {"m": "x"})
    assert await read_whole(full, *without_index) == ["events"]  # it would have been found out


async def test_neither_what_is_asked_of_a_project_nor_a_sweep_reads_all_that_ever_was(
    full: AsyncConnection, clock: Clock
) -> None:
    counts = {}
    for name, query in (OF_A_PROJECT | SWEEPS).items():
        async with full.begin_nested() as once:
            with statements(full) as queries:
                await query(full, clock)
            await once.rollback()
        assert queries, name
        if (rows := sum([await rows_read(full, *s) for s in queries])) > FEW:
            counts[name] = rows

    assert counts == {}
    count_query = ("select count(*) from jobs where project_id = %(p)s", {"p": "p-job"})
    assert await rows_read(full, *count_query) > FEW
