"""Cores that are kept for a job that cannot use them are no wall: not for others, nor for ever."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Price
from service.domain.queue.admission import ADMISSION_HOLD
from service.pricing.fixed import FixedPrices
from service.reconciler.jobs.admission import Admissions
from tests.integration.queue.test_admission import admissions, asks, region, settle, submitted
from tests.nodes.scripted_node import boot, evicted, train
from tests.world import PRICE, SPOT, World

DEAR = Price(hourly=Decimal(9), on_demand_hourly=PRICE.on_demand_hourly)
LIMIT = {"nodes": 2, "max_price": {"amount": "1.06"}}
ROUNDS = (ADMISSION_HOLD + timedelta(minutes=5)) // timedelta(minutes=1)


async def wave(world: World, *jobs: str) -> None:
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
        await settle(world, queue, seconds=60)


@pytest.mark.parametrize(("machines", "others"), [(3, 0), (2, 0), (4, 2)])
async def test_of_two_evicted_gangs_that_do_not_fit_any_more_the_first_goes_on_at_once(
    world: World, machines: int, others: int
) -> None:
    queue = admissions(world)
    await region(world, queue, machines=4)
    first, second = await submitted(world), await submitted(world)
    await wave(world, first, second)
    await region(world, queue, machines, others)
    await settle(world, queue, times=4)
    at_once = (await asks(world, first), await asks(world, second))
    await pass_time(world, queue)
    waits = await world.job(second)

    assert at_once == (2, 1)
    assert await asks(world, second) == 1
    assert waits["queue"]["code"] == "region_cores"
    assert waits["queue"]["since"] < world.clock().timestamp() - ADMISSION_HOLD.total_seconds()


async def test_a_job_that_finds_no_price_keeps_no_cores_from_another_project(
    world: World,
) -> None:
    queue = admissions(world)
    await region(world, queue, machines=2)
    world.clock.advance(seconds=1)
    job = await world.submit(infrastructure=LIMIT)
    world.jobs = replace(world.jobs, prices=FixedPrices({SPOT: DEAR}))
    await world.tick(3)
    mine, world.key = world.key, await world.other_key()
    other = await submitted(world)
    await queue.run_once()
    before = (await asks(world, other), (await world.job(other))["queue"]["code"])
    await pass_time(world, queue)
    after = await asks(world, other)
    world.key = mine
    shown = await world.job(job["id"])

    assert (before, after) == ((0, "region_cores"), 1)
    assert shown["queue"] is None, "it lacks a price, and no turn"
    assert "max_price" in shown["status_reason"]["message"]


async def test_who_lost_its_cores_is_let_in_before_those_who_came_later(world: World) -> None:
    queue = admissions(world)
    await region(world, queue, machines=2)
    lost = await submitted(world)
    await wave(world, lost)
    await region(world, queue, machines=2, others=2)
    await pass_time(world, queue)
    later = await submitted(world)
    await region(world, queue, machines=2)
    await settle(world, queue, times=3)

    assert (await asks(world, lost), await asks(world, later)) == (2, 0)
    assert {"job.waits", "job.admitted"} <= set(await world.event_codes(lost))


async def test_nobody_takes_the_cores_of_a_job_whose_machines_are_slow_to_go(world: World) -> None:
    queue = admissions(world)
    await region(world, queue, machines=2)
    job = await submitted(world)
    await train(world, await boot(world, job), step=1)
    mine, world.key = world.key, await world.other_key()
    other = await submitted(world)
    world.key, world.cloud.delete_time = mine, 2 * ADMISSION_HOLD
    for _ in range(8 * ROUNDS):  # its nodes are silent, which is not seen in rounds of a minute
        await queue.read_cores()
        await settle(world, queue)
    again, world.key = await asks(world, job), await world.other_key()

    assert again == 2
    assert await asks(world, other) == 0
