"""Cores that are kept for a job that cannot use them are no wall: not for others, nor for ever."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Price
from service.domain.queue.admission import ADMISSION_HOLD
from service.pricing.fixed import FixedPrices
from service.reconciler.jobs.admission import Admissions
from tests.integration.queue.test_admission import (
    admissions,
    count_attempts,
    run_queue,
    set_region_quota,
    submit_job,
)
from tests.nodes.scripted_node import boot, evicted, train
from tests.world import PRICE, SPOT, World

DEAR = Price(hourly=Decimal(9), on_demand_hourly=PRICE.on_demand_hourly)
LIMIT = {"nodes": 2, "max_price": {"amount": "1.06"}}
ROUNDS = (ADMISSION_HOLD + timedelta(minutes=5)) // timedelta(minutes=1)


async def evict_after_training(world: World, *jobs: str) -> None:
    """All of them train, and Azure takes all their machines."""
    for job in jobs:
        await train(world, await boot(world, job), step=1)
    for job in jobs:
        await evicted(world, job)
    world.clock.advance(seconds=61)
    await world.attempts.run_once()  # it is seen, and nobody has asked again


async def pass_time(world: World, queue: Admissions) -> None:
    """Machines are deleted, and cores kept no more."""
    for _ in range(ROUNDS):
        await queue.read_cores()
        await run_queue(world, queue, seconds=60)


@pytest.mark.parametrize(("machines", "other_machines"), [(3, 0), (4, 2)])
async def test_the_first_of_two_evicted_gangs_that_no_longer_fit_resumes_at_once(
    world: World, machines: int, other_machines: int
) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=4)
    first, second = await submit_job(world), await submit_job(world)
    await evict_after_training(world, first, second)
    await set_region_quota(world, queue, machines, other_machines)
    await run_queue(world, queue, times=4)
    counts = (await count_attempts(world, first), await count_attempts(world, second))
    await pass_time(world, queue)
    waiting_job = await world.job(second)

    assert counts == (2, 1)
    assert await count_attempts(world, second) == 1
    assert waiting_job["queue"]["code"] == "region_cores"
    assert (
        waiting_job["queue"]["since"] < world.clock().timestamp() - ADMISSION_HOLD.total_seconds()
    )


async def test_a_job_that_finds_no_price_keeps_no_cores_from_another_project(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    world.clock.advance(seconds=1)
    job = await world.submit(infrastructure=LIMIT)
    world.jobs = replace(world.jobs, prices=FixedPrices({SPOT: DEAR}))
    await world.tick(3)
    own_key, world.key = world.key, await world.other_key()
    other_job = await submit_job(world)
    await queue.run_once()
    before = (await count_attempts(world, other_job), (await world.job(other_job))["queue"]["code"])
    await pass_time(world, queue)
    after = await count_attempts(world, other_job)
    world.key = own_key
    view = await world.job(job["id"])

    assert (before, after) == ((0, "region_cores"), 1)
    assert view["queue"] is None, "it lacks a price, and no turn"
    assert "max_price" in view["status_reason"]["message"]


async def test_a_job_that_lost_its_cores_is_admitted_before_later_ones(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    lost_job = await submit_job(world)
    await evict_after_training(world, lost_job)
    await set_region_quota(world, queue, machines=2, other_machines=2)
    await pass_time(world, queue)
    later_job = await submit_job(world)
    await set_region_quota(world, queue, machines=2)
    await run_queue(world, queue, times=3)

    assert (await count_attempts(world, lost_job), await count_attempts(world, later_job)) == (2, 0)
    assert {"job.waits", "job.admitted"} <= set(await world.event_codes(lost_job))


async def test_cores_of_machines_that_are_slow_to_delete_stay_reserved(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    job = await submit_job(world)
    await train(world, await boot(world, job), step=1)
    own_key, world.key = world.key, await world.other_key()
    other_job = await submit_job(world)
    world.key, world.cloud.delete_time = own_key, 2 * ADMISSION_HOLD
    for _ in range(8 * ROUNDS):  # its nodes are silent, which is not seen in rounds of a minute
        await queue.read_cores()
        await run_queue(world, queue)
    attempt_count, world.key = await count_attempts(world, job), await world.other_key()

    assert attempt_count == 2
    assert await count_attempts(world, other_job) == 0
