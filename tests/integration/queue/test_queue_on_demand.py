"""Spot cores where machines could be had on demand too: that is no way past the queue."""

from tests.integration.money.test_deadlines import until
from tests.integration.queue.test_admission import (
    admissions,
    count_attempts,
    set_region_quota,
    submit_job,
)
from tests.integration.queue.test_core_release import pass_time
from tests.integration.queue.test_two_regions import pass_minutes
from tests.world import BOTH, ON_DEMAND, World

OFFERINGS = BOTH


async def test_a_job_without_a_deadline_waits_its_turn_for_spot(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    first, second = await submit_job(world), await submit_job(world)
    began = await world.job(second)
    await pass_time(world, queue)

    shown = await world.job(second)
    assert (await count_attempts(world, first), await count_attempts(world, second)) == (1, 0)
    assert shown["queue"]["code"] == "region_cores"
    assert shown["queue"]["since"] == began["queue"]["since"]
    assert (await world.event_codes(second)).count("job.waits") == 1
    assert "job.admitted" not in await world.event_codes(second)


async def test_a_job_whose_deadline_pays_for_on_demand_is_never_kept_in_the_queue(
    world: World,
) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    await submit_job(world)
    urgent = await submit_job(world, deadline=until(world, hours=3))
    await set_region_quota(world, queue, machines=2, others=2)
    await pass_time(world, queue)
    told = await world.event_codes(urgent)
    assert await count_attempts(world, urgent) == 0

    assert (await world.job(urgent))["queue"] is None
    assert not {"job.waits", "job.admitted"} & set(told)


async def test_on_demand_is_asked_for_again_when_its_shortage_ends_though_no_cores_are_left(
    world: World,
) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2, others=2)
    world.cloud.sold_out.add(ON_DEMAND)
    urgent = await submit_job(world, deadline=until(world, minutes=30))
    await pass_minutes(world, queue, 20)
    refused = await count_attempts(world, urgent)
    world.cloud.sold_out.clear()
    await pass_minutes(world, queue, 10)

    placed = await world.attempts_of(urgent)
    assert refused == 4
    assert (placed[-1]["capacity"], placed[-1]["outcome"]) == ("on_demand", None)
