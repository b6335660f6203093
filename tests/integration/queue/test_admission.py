"""The queue over real rows: quotas of projects and regions, with many replicas at once."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Priority
from service import console
from service.db.queue import queue, quotas
from service.db.queue.queue import Gang
from service.db.schema import queue_tables, tables
from service.domain.cloud.fleet import SpotCores, scale_set_name
from service.domain.queue import queue_forecast
from service.domain.queue.admission import NO_QUOTA, RESERVATION_DELAY, ProjectQuota, WaitReason
from service.reconciler.jobs.admission import Admissions
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import boot, train
from tests.world import SPOT, World

JOBS = "/v1/fine_tuning/jobs"
CORES = 96  # of one machine
ONE = ProjectQuota(max_jobs=1)


def admissions(world: World, **members: Any) -> Admissions:  # noqa: ANN401 - members
    """One replica's."""
    return Admissions(
        engine=world.engine, cloud=world.cloud, now=world.clock, regions=(SPOT.region,), **members
    )


def limit_projects(world: World, default_quota: ProjectQuota) -> Admissions:
    """Every project may hold so much."""
    world.jobs = replace(world.jobs, default_quota=default_quota)
    return admissions(world, default_quota=default_quota)


async def submit_job(world: World, **infrastructure: Any) -> str:  # noqa: ANN401
    """Submit a job that requests machines."""
    world.clock.advance(seconds=1)
    job = await world.submit(infrastructure={"nodes": 2} | infrastructure)
    await world.tick(2)
    return str(job["id"])


async def count_attempts(world: World, job_id: str) -> int:
    """Return the number of the job's attempts."""
    return len(await world.attempts_of(job_id))


async def run_queue(world: World, queue: Admissions, times: int = 1, seconds: float = 15.0) -> None:
    """Let in whoever may, and let them ask."""
    for _ in range(times):
        await queue.run_once()
        await world.tick(1, seconds)


async def set_region_quota(
    world: World, queue: Admissions, machines: int, other_machines: int = 0
) -> None:
    """Set the Spot quota of the region, and how much of it others use, in machines."""
    quota = SpotCores(limit=machines * CORES, used=other_machines * CORES)
    world.cloud.spot_quotas[SPOT.region] = quota
    await queue.read_cores()


async def test_a_quota_holds_while_three_replicas_admit_at_once(world: World) -> None:
    default_quota = ProjectQuota(max_jobs=2)
    jobs = [str((await world.submit())["id"]) for _ in range(6)]
    await world.jobs.run_once()  # all are validated
    steps = [replace(world.jobs, default_quota=default_quota) for _ in range(3)]
    queues = [admissions(world, default_quota=default_quota) for _ in range(3)]
    for _ in range(3):
        world.clock.advance(seconds=15)
        await asyncio.gather(*(s.run_once() for s in steps), *(q.run_once() for q in queues))

    async with world.engine.connect() as conn:
        job_ids = (await conn.execute(select(tables.attempts.c.job_id))).scalars().all()
    positions = [(await world.job(job))["queue"] for job in jobs if job not in job_ids]

    assert len(job_ids) == 2
    assert sorted(p["position"] for p in positions) == [1, 2, 3, 4]
    assert {p["reason"] for p in positions} == {"Project tests has 2 of its 2 jobs under way."}


async def test_a_queued_job_shows_its_place_reason_and_times(world: World) -> None:
    queue = limit_projects(world, ONE)
    await submit_job(world)
    low_job = await submit_job(world, priority="low")
    high_job = await submit_job(world, priority="high")
    await queue.run_once()

    view, now = await world.job(low_job), int(world.clock().timestamp())
    (listed_job,) = [
        j for j in (await world.call("GET", JOBS)).json()["data"] if j["id"] == low_job
    ]

    assert (view["status"], view["phase"]) == ("queued", "queued")
    assert view["status_reason"] == {
        "code": "project_jobs",
        "message": "2nd in the queue: project tests has 1 of its 1 jobs under way.",
        "since": view["queue"]["since"],
        "next_try_at": now + 5,
    }
    assert view["queue"] | {"since": None} == {
        "position": 2,
        "ahead": 1,
        "code": "project_jobs",
        "reason": "Project tests has 1 of its 1 jobs under way.",
        "since": None,
        "next_try_at": now + 5,
    }
    assert view["created_at"] <= view["queue"]["since"] <= now
    assert listed_job["queue"]["position"] == 2
    assert (await world.job(high_job))["queue"]["position"] == 1
    assert view["infrastructure"]["priority"] == "low"


async def test_another_priority_moves_a_job_that_waits(world: World) -> None:
    queue = limit_projects(world, ONE)
    await submit_job(world)
    first, second = await submit_job(world), await submit_job(world)
    await world.call("PATCH", f"{JOBS}/{second}", json={"infrastructure": {"priority": "high"}})
    await world.tick(1)
    await queue.run_once()

    assert (await world.job(second))["queue"]["position"] == 1
    assert (await world.job(first))["queue"]["position"] == 2


async def test_a_pause_gives_the_place_back_and_a_resumed_job_waits_again(world: World) -> None:
    queue = limit_projects(world, ONE)
    first, second = await submit_job(world), await submit_job(world)
    await world.call("POST", f"{JOBS}/{first}/pause")
    await world.tick(4)
    await run_queue(world, queue)
    attempt_count = await count_attempts(world, second)
    await world.call("POST", f"{JOBS}/{first}/resume")
    await world.tick(3)
    await run_queue(world, queue)

    assert attempt_count == 1
    assert await count_attempts(world, first) == 1, "it was let in once, before the pause"
    assert (await world.job(first))["queue"]["position"] == 1


async def test_an_eviction_never_sends_a_job_back_into_the_queue(world: World) -> None:
    queue = limit_projects(world, ONE)
    first, urgent = await submit_job(world, nodes=1), await submit_job(world, priority="high")
    await train(world, await boot(world, first), step=1)
    world.cloud.evict((await world.cloud.list_owned())[0].name)
    await run_queue(world, queue, 4)

    assert [a["outcome"] for a in await world.attempts_of(first)][:1] == ["evicted"]
    assert await count_attempts(world, first) == 2
    assert await count_attempts(world, urgent) == 0


async def test_a_large_gang_is_admitted_though_small_jobs_keep_coming(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=4)
    runs = await submit_job(world)
    large_job = await submit_job(world, nodes=4)
    await run_queue(world, queue)
    reason = (await world.job(large_job))["status_reason"]
    world.clock.advance(seconds=RESERVATION_DELAY.total_seconds())
    await queue.read_cores()
    small_job = await submit_job(world)
    await run_queue(world, queue)
    first, behind = [await world.job(job) for job in (large_job, small_job)]
    await world.call("POST", f"{JOBS}/{runs}/cancel")
    await run_queue(world, queue, 6, seconds=60)

    assert reason["code"] == "region_cores"
    assert reason["message"].endswith("it needs 384 Spot cores in eastus, and 192 of 384 are free.")
    assert (behind["queue"]["code"], behind["phase"]) == ("larger_job", "queued")
    assert behind["forecast"]["let_in"]["p50"] > first["forecast"]["let_in"]["p50"] + 300
    assert (await count_attempts(world, large_job), await count_attempts(world, small_job)) == (
        1,
        0,
    )


async def test_no_more_machines_are_asked_for_than_azure_has_cores_left(world: World) -> None:
    first, second = await submit_job(world, nodes=1), await submit_job(world, nodes=1)
    assert (await count_attempts(world, first), await count_attempts(world, second)) == (1, 1), (
        "no quota was known"
    )
    await train(world, await boot(world, second), step=1)
    await set_region_quota(world, admissions(world), machines=1)
    world.cloud.evict(scale_set_name((await world.attempts_of(second))[0]["id"]))
    await world.tick(4)

    view = await world.job(second)

    assert await count_attempts(world, second) == 1
    assert view["phase"] == "waiting_capacity", view["status_reason"]
    assert view["status_reason"]["message"].startswith(
        "0 of 96 Spot cores are free in eastus, and 96 are needed. The next check is at "
    )
    finish_at = (await world.job(first))["forecast"]["finish"]
    assert view["forecast"]["let_in"]["p50"] == pytest.approx(finish_at["p50"], abs=15)


async def test_cores_that_are_kept_for_a_job_do_not_come_free_for_it(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=1)
    job = await submit_job(world, nodes=1)
    await train(world, await boot(world, job), step=1)
    await set_region_quota(world, queue, machines=1, other_machines=1)
    world.cloud.evict(scale_set_name((await world.attempts_of(job))[0]["id"]))
    await world.tick(4)

    forecast = (await world.job(job))["forecast"]

    assert (forecast["let_in"], forecast["finish"]) == (None, None)
    assert forecast["unknown_because"].startswith("Others in the subscription hold")


async def test_a_job_that_waits_for_cores_shows_when_they_are_forecast_to_be_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit_job(world)
    await train(world, await boot(world, first), step=1)
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    second, third = await submit_job(world), await submit_job(world)
    await queue.run_once()
    first_view, second_view, last_forecast = [
        await world.job(job) for job in (first, second, third)
    ]
    async with world.engine.begin() as conn:
        condition = queue_tables.queue.c.job_id == second
        await conn.execute(update(queue_tables.queue).where(condition).values(code=WaitReason.JOBS))
    world.clock.advance(seconds=6)  # answers are kept for 5
    past = await world.job(third)
    world.clock.advance(seconds=6)
    with monkeypatch.context() as patches:
        patches.setattr("service.db.queue.queue_forecast_rows.MAX_HOLDS", 0)
        batch = (await world.job(third))["forecast"]
    await set_region_quota(world, queue, machines=4, other_machines=4)
    await queue.run_once()
    never = await world.job(second)

    assert second_view["phase"] == "waiting_capacity"
    finish_at = first_view["forecast"]["finish"]
    assert second_view["forecast"]["let_in"]["p50"] == pytest.approx(finish_at["p50"], abs=2)
    assert second_view["estimated_finish"] > finish_at["p50"] + 300
    assert (
        last_forecast["forecast"]["let_in"]["p50"] > second_view["forecast"]["let_in"]["p50"] + 300
    )
    assert past["forecast"]["let_in"]["p50"] == pytest.approx(finish_at["p50"] + 6, abs=2)
    assert (batch["let_in"], batch["unknown_because"]) == (None, queue_forecast.TOO_MANY.why)
    assert never["estimated_finish"] is None
    assert never["forecast"]["finish"] is None
    assert never["forecast"]["unknown_because"].startswith("Others in the subscription hold")


async def test_a_turn_that_its_replica_left_is_taken_by_another(world: World) -> None:
    dead, alive = limit_projects(world, ONE), admissions(world, default_quota=ONE)
    first, second = await submit_job(world), await submit_job(world)
    await dead.run_once()
    await world.call("POST", f"{JOBS}/{first}/cancel")
    await world.tick(4, seconds=1)
    before = await alive.run_once()
    world.clock.advance(seconds=20)
    after = await alive.run_once()

    assert (before, after) == (0, 1)
    assert (await world.job(second))["queue"] is None


async def test_an_operator_gives_a_project_a_quota_and_lifts_it(world: World) -> None:
    async def run(*arguments: str) -> str:
        options = console.parse_arguments(None, ["quota", "--project", "tests", *arguments])
        return "\n".join(await console.run_command(world.engine, options, world.clock(), NO_QUOTA))

    output = await run("--max-jobs", "1", "--max-gpus", "64", "--weight", "2")
    first, second = await submit_job(world), await submit_job(world)
    attempt_count = await count_attempts(world, second)
    second_output = await run("--max-jobs", "none")
    await run_queue(world, admissions(world))

    assert output.splitlines()[0] == "Project tests: 0 jobs under way of 1, 0 GPUs of 64, weight 2."
    assert (
        await count_attempts(world, first),
        attempt_count,
        await count_attempts(world, second),
    ) == (
        1,
        0,
        1,
    )
    assert (await run()).startswith("Project tests: 2 jobs under way of any number, 32 GPUs")
    assert (
        second_output.splitlines()[0]
        == "Project tests: 1 jobs under way of any number, 16 GPUs of 64, weight 2."
    )


GANG = 2 * CORES
QUOTA = SpotCores(limit=100 * GANG, used=0)
BACK = "update attempts set state = 'pending', outcome = null, ended_at = null"
ENDS = "update attempts set state = 'ended', outcome = 'evicted', ended_at = now()"


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("running", [True, False], ids=["an attempt ends", "an attempt begins"])
async def test_cores_are_counted_once_whatever_is_committed_between_two_statements(
    engine: AsyncEngine, database_url: str, clock: Clock, which: int, running: bool
) -> None:
    gang = Gang(job_id="job", project_id="p-job", priority=Priority.NORMAL, gpus=16, wants=())
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="queued")
        await queue.admit_at_once(conn, gang, clock(), SPOT.region, GANG)
        await add_attempt(conn, clock())
        if not running:
            await conn.execute(text(ENDS))
        await quotas.claim_region(conn, SPOT.region, clock(), quotas.STALE)
        await quotas.record_usage(conn, SPOT.region, QUOTA.limit, QUOTA.used, clock())

    count = 0

    def meanwhile(*_: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        nonlocal count
        count += 1
        if count == which:
            url = database_url.replace("+psycopg", "")
            with psycopg.connect(url, autocommit=True) as other_conn:
                other_conn.execute(ENDS if running else BACK)

    async with engine.connect() as conn:
        event.listen(conn.sync_connection, "before_cursor_execute", meanwhile)
        region_quotas = await quotas.regions(conn, clock())

    assert count >= which
    assert region_quotas[SPOT.region].own == GANG
