"""A replica had a clock that was an hour ahead: what it wrote then holds up nobody for an hour."""

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError
from service.db.money import budgets
from service.db.queue import quotas
from service.domain.cloud.circuit_breaker import FAILURES
from service.domain.cloud.rate_limit import CloudCall
from service.domain.money.budget import PROJECT_BUDGET
from service.reconciler.cloud.lister import Lister
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.jobs.admission import Admissions
from tests.clock import Clock
from tests.integration.cloud.test_lister import EVERY
from tests.integration.cloud.test_rate_limit import failing, fine
from tests.integration.db.rows import add_job
from tests.integration.queue.test_admission import (
    CORES,
    JOBS,
    ONE,
    limit_projects,
    set_region_quota,
    submit_job,
)
from tests.world import SPOT, World


async def test_a_replica_whose_clock_was_ahead_holds_up_no_list(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, wrong_clock = FakeCloud(now=clock), Clock(clock() + timedelta(hours=1))
    skewed = Lister(engine=engine, cloud=cloud, interval=EVERY, now=wrong_clock)
    right = Lister(engine=engine, cloud=cloud, interval=EVERY, now=clock)
    await skewed.run_once()
    await right.run_once()
    vm_list = right.fresh_list()

    assert vm_list is not None
    assert vm_list.listed_at == clock()


async def test_a_replica_whose_clock_was_ahead_shuts_no_region_for_long(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, wrong_clock = FakeCloud(now=clock), Clock(clock() + timedelta(hours=1))
    skewed = RateLimitedCloud(engine=engine, cloud=cloud, now=wrong_clock)
    right = RateLimitedCloud(engine=engine, cloud=cloud, now=clock)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await skewed.call("eastus", CloudCall.DELETE, failing)

    assert await right.call("eastus", CloudCall.DELETE, fine) == "fine"


async def test_a_replica_whose_clock_was_ahead_holds_up_neither_the_queue_nor_its_cores(
    world: World,
) -> None:
    right = limit_projects(world, ONE)
    wrong_clock = Clock(world.clock() + timedelta(hours=1))
    skewed = Admissions(
        engine=world.engine,
        cloud=world.cloud,
        now=wrong_clock,
        regions=(SPOT.region,),
        default_quota=ONE,
    )
    first, second = await submit_job(world), await submit_job(world)
    await set_region_quota(world, skewed, machines=8)
    await skewed.run_once()
    await world.call("POST", f"{JOBS}/{first}/cancel")
    await world.tick(4, seconds=1)
    await set_region_quota(world, right, machines=4)
    admitted = await right.run_once()
    async with world.engine.connect() as conn:
        cores = (await quotas.regions(conn, world.clock()))[SPOT.region]

    assert admitted == 1
    assert cores.limit == 4 * CORES
    assert (await world.job(second))["queue"] is None


async def test_a_replica_whose_clock_was_ahead_stops_no_job_for_a_budget_that_was_set_since(
    engine: AsyncEngine, clock: Clock
) -> None:
    because = f"{PROJECT_BUDGET} exhausted: 5.00 of 5.00 USD are spent"
    wrong_time = clock() + timedelta(hours=1)
    async with engine.begin() as conn:
        await add_job(conn, clock(), over_budget_at=wrong_time, over_budget_because=because)
        before = await budgets.jobs_stopped_by_former_budget(conn)
        await budgets.set_project(conn, "p-job", Decimal(9), clock(), clock())
        after = await budgets.jobs_stopped_by_former_budget(conn)

    assert (before, after) == ([], ["job"])
