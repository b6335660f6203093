"""Jobs that wait where on demand could be had too: their turn, and what they tell of the end."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import text

from service.db.jobs import job_facts
from service.db.jobs.job_facts import JobOverview
from service.domain.cloud.fleet import Price
from service.domain.planning.forecast import RemainingTime
from service.operations.queue.waits import WaitForecasts
from service.pricing.fixed import FixedPrices
from tests.integration.api.jobs.test_submissions import statements
from tests.integration.money.test_deadlines import until
from tests.integration.queue.test_admission import (
    admissions,
    count_attempts,
    set_region_quota,
    submit_job,
)
from tests.integration.queue.test_core_release import pass_time
from tests.integration.queue.test_two_regions import pass_minutes
from tests.nodes.scripted_node import start_training
from tests.world import BOTH, ON_DEMAND, PRICE, SPOT, World

OFFERINGS = BOTH


async def submit_refused(world: World, minutes: int, **infrastructure: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a job for which Spot has had no room for so long."""
    world.cloud.sold_out.add(SPOT)
    job = await world.submit(infrastructure={"nodes": 2} | infrastructure)
    await world.tick(6, seconds=20)
    world.clock.advance(minutes=minutes)
    await world.tick(2)
    return await world.job(job["id"])


def seconds_to_finish(world: World, job_view: dict[str, Any]) -> dict[str, float]:
    return {
        name: at - world.clock().timestamp() for name, at in job_view["forecast"]["finish"].items()
    }


async def test_a_job_that_waits_is_done_later_the_longer_it_waits_and_costs_no_more(
    world: World,
) -> None:
    path = "/v1/fine_tuning/jobs?dry_run=true"
    await world.call("POST", path, json=await world.job_request())  # it counts the rows
    first_job = await world.submit()
    finish_seconds = seconds_to_finish(world, await world.job(first_job["id"]))
    young = await submit_refused(world, minutes=4)
    young_forecast = seconds_to_finish(world, young)
    old = await submit_refused(world, minutes=90)
    late_forecast = seconds_to_finish(world, old)

    assert finish_seconds["p50"] + 600 < young_forecast["p50"] < late_forecast["p50"]
    assert (
        late_forecast["p90"] - late_forecast["p10"] > young_forecast["p90"] - young_forecast["p10"]
    )
    assert young["estimated_finish"] == young["forecast"]["finish"]["p50"]
    assert young["cost"]["forecast_total"] == first_job["cost"]["forecast_total"]


async def test_a_job_that_will_buy_on_demand_in_time_waits_no_longer_than_it_may(
    world: World,
) -> None:
    deadline = int((world.clock() + timedelta(hours=2)).timestamp())

    view = await submit_refused(world, minutes=3, deadline=deadline)

    assert view["forecast"]["finish"]["p50"] <= deadline
    assert view["forecast"]["meets_deadline"] >= 0.85


async def around_of(world: World, job: str) -> JobOverview:
    async with world.engine.connect() as conn:
        query = text("select project_id from jobs where id = :job")
        position = (await conn.execute(query, {"job": job})).scalar_one()
        overview = await job_facts.find_overview(conn, job, position, world.clock())
    assert overview is not None
    return overview


async def wait_at(world: World, job: str, spot: str) -> RemainingTime | None:
    """With Spot at another price than the plan's."""
    price = Price(hourly=Decimal(spot), on_demand_hourly=PRICE.on_demand_hourly)
    overview = await around_of(world, job)
    now_at = WaitForecasts(engine=world.engine, prices=FixedPrices({SPOT: price}))
    return (await now_at.add_forecasts(overview, world.clock())).wait


async def test_what_costs_more_than_may_be_paid_is_not_waited_for(world: World) -> None:
    cap = {"max_price": {"per": "gpu_hour", "amount": f"{PRICE.hourly / 8 + 1}"}}
    view = await submit_refused(world, minutes=9, **cap)

    assert await wait_at(world, view["id"], f"{PRICE.hourly}") is not None
    assert await wait_at(world, view["id"], f"{PRICE.hourly * 2}") is None


async def test_waits_are_read_only_where_they_are_shown(world: World) -> None:
    job = (await submit_refused(world, minutes=9))["id"]
    path = f"/v1/fine_tuning/jobs/{job}"

    with statements(world) as of_costs:
        for table in ("cost", "storage"):
            await world.call("GET", f"{path}/{table}")
    with statements(world) as first:
        await world.call("GET", path)

    assert of_costs
    assert not any("FROM shortages" in s or "FROM attempts" in s for s in of_costs)
    assert sum("FROM shortages" in s or "FROM attempts" in s for s in first) == 2


async def test_a_job_that_trains_expects_waits_after_evictions_to_come_and_on_demand_none(
    world: World,
) -> None:
    job, _, number = await start_training(world)
    path = f"/v1/fine_tuning/jobs/{job}"

    with statements(world) as first:
        await world.call("GET", path)
    world.clock.advance(seconds=20)
    with statements(world) as second:
        await world.call("GET", path, headers={"cache-control": "no-cache"})
    overview = await around_of(world, job)
    long_job = replace(overview, job=replace(overview.job, total_steps=100_000))
    forecasts = WaitForecasts(engine=world.engine, prices=FixedPrices({SPOT: PRICE}))
    spot, on_demand_offering = [
        await forecasts.add_forecasts(replace(long_job, on_demand=on_demand), world.clock())
        for on_demand in (False, True)
    ]

    assert number == 1
    assert spot.finish.p90 > spot.remaining_time.p90 + 3600
    assert on_demand_offering.finish == on_demand_offering.remaining_time
    assert on_demand_offering.remaining_time.p50 < spot.remaining_time.p50 < spot.finish.p50
    assert [sum("UNION" in s for s in statements_seen) for statements_seen in (first, second)] == [
        1,
        0,
    ]


async def test_a_job_without_a_deadline_waits_its_turn_for_spot(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    first, second = await submit_job(world), await submit_job(world)
    running = await world.job(second)
    await pass_time(world, queue)

    job = await world.job(second)
    assert (await count_attempts(world, first), await count_attempts(world, second)) == (1, 0)
    assert job["queue"]["code"] == "region_cores"
    assert job["queue"]["since"] == running["queue"]["since"]
    assert (await world.event_codes(second)).count("job.waits") == 1
    assert "job.admitted" not in await world.event_codes(second)


async def test_a_job_whose_deadline_pays_for_on_demand_is_never_kept_in_the_queue(
    world: World,
) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2)
    await submit_job(world)
    urgent = await submit_job(world, deadline=until(world, hours=3))
    await set_region_quota(world, queue, machines=2, other_machines=2)
    await pass_time(world, queue)
    codes = await world.event_codes(urgent)
    assert await count_attempts(world, urgent) == 0

    assert (await world.job(urgent))["queue"] is None
    assert not {"job.waits", "job.admitted"} & set(codes)


async def test_on_demand_is_asked_for_again_when_its_shortage_ends_though_no_cores_are_left(
    world: World,
) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2, other_machines=2)
    world.cloud.sold_out.add(ON_DEMAND)
    urgent = await submit_job(world, deadline=until(world, minutes=30))
    await pass_minutes(world, queue, 20)
    attempt_count = await count_attempts(world, urgent)
    world.cloud.sold_out.clear()
    await pass_minutes(world, queue, 10)

    attempts = await world.attempts_of(urgent)
    assert attempt_count == 4
    assert (attempts[-1]["capacity"], attempts[-1]["outcome"]) == ("on_demand", None)
