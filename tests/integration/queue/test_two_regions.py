"""Jobs that may go to two regions, one of which lacks cores and the other something else."""

from dataclasses import replace
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Price, SpotCores
from service.pricing.fixed import FixedPrices
from service.reconciler.jobs.admission import Admissions
from tests.integration.queue.test_admission import CORES, JOBS, count_attempts, run_queue
from tests.integration.queue.test_core_release import evict_after_training
from tests.world import PRICE, SPOT, World

WEST = replace(SPOT, region="westus")
LITTLE_MORE = replace(PRICE, hourly=PRICE.hourly + Decimal("0.01"))
OFFERINGS = {SPOT: PRICE, WEST: LITTLE_MORE}  # east is a little cheaper
DEAR = Price(hourly=Decimal(20), on_demand_hourly=PRICE.on_demand_hourly)
A_MINUTE = 4  # rounds


@pytest.fixture
def queue(world: World) -> Admissions:
    regions = (SPOT.region, WEST.region)
    return Admissions(engine=world.engine, cloud=world.cloud, now=world.clock, regions=regions)


def others_use(world: World, **machines: int) -> None:
    """Each region has cores for two machines."""
    for region, used in machines.items():
        world.cloud.spot_quotas[region] = SpotCores(limit=2 * CORES, used=used * CORES)


async def pass_minutes(world: World, queue: Admissions, minutes: int) -> None:
    for _ in range(A_MINUTE * minutes):
        await queue.read_cores()
        await run_queue(world, queue)


async def evict_gang(world: World, queue: Admissions, **infrastructure: object) -> str:
    """Evict a gang of two that trained in the east, where others use its cores afterwards."""
    others_use(world, eastus=0, westus=0)
    await queue.read_cores()
    world.clock.advance(seconds=1)
    job = await world.submit(infrastructure={"nodes": 2} | infrastructure)
    await world.tick(2)
    await evict_after_training(world, job["id"])
    others_use(world, eastus=2)
    return str(job["id"])


async def test_a_queued_job_is_not_admitted_in_a_region_above_its_price_limit(
    world: World, queue: Admissions
) -> None:
    job = await evict_gang(world, queue, max_price={"amount": "1.07"})
    world.jobs = replace(world.jobs, prices=FixedPrices({SPOT: PRICE, WEST: DEAR}))
    await pass_minutes(world, queue, 40)
    codes = await world.event_codes(job)

    assert (codes.count("job.waits"), codes.count("job.admitted")) == (1, 0)
    assert (await world.job(job))["queue"]["reason"].startswith("It needs 192 Spot cores in eastus")


async def test_a_gang_gets_its_cores_back_though_small_jobs_keep_coming_and_azure_refuses_elsewhere(
    world: World, queue: Admissions
) -> None:
    gang = await evict_gang(world, queue)
    world.cloud.sold_out.add(WEST)
    await pass_minutes(world, queue, 7)
    others_use(world, eastus=0)
    small_jobs: list[str] = []
    for _ in range(6):
        while len(small_jobs) < 3:  # one has machines, or two have; the others wait
            body = {"nodes": 1, "regions": [SPOT.region]}
            small_jobs.append(str((await world.submit(infrastructure=body))["id"]))
        await pass_minutes(world, queue, 10)
        if await count_attempts(world, gang) > 1 and (await world.job(gang))["queue"] is None:
            break
        await world.call("POST", f"{JOBS}/{small_jobs.pop(0)}/cancel")
    newest_attempt = (await world.attempts_of(gang))[-1]

    assert (newest_attempt["region"], newest_attempt["outcome"]) == (SPOT.region, None)


@pytest.mark.parametrize(
    ("submitted", "change", "refusal"),
    [
        (["eastus"], None, "planned for eastus only"),
        (["eastus"], ["eastus", "westus"], "planned for eastus only"),
        (["eastus", "westus"], ["westus"], ""),
        (None, ["westus"], ""),
        (None, ["uksouth"], "planned for eastus, westus"),
    ],
)
async def test_the_regions_of_a_job_are_changed_within_its_plan_or_refused(
    world: World, submitted: list[str] | None, change: list[str] | None, refusal: str
) -> None:
    infrastructure = {"nodes": 2} | ({"regions": submitted} if submitted else {})
    job = (await world.submit(infrastructure=infrastructure))["id"]
    path, body = f"/v1/fine_tuning/jobs/{job}", {"infrastructure": {"regions": change}}
    response = await world.call("PATCH", path, json=body)

    regions = (await world.job(job))["infrastructure"]["regions"]
    if refusal:
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, "infrastructure.regions")
        assert refusal in error["message"]
        assert regions == submitted
    else:
        assert response.status_code == 200
        assert regions == change


async def test_a_job_gets_its_regions_back_after_they_were_narrowed(world: World) -> None:
    region_names = ["eastus", "westus"]
    job = (await world.submit(infrastructure={"nodes": 2, "regions": region_names}))["id"]
    path = f"/v1/fine_tuning/jobs/{job}"
    for regions in (["westus"], region_names):
        body = {"infrastructure": {"regions": regions, "priority": "high"}}
        assert (await world.call("PATCH", path, json=body)).status_code == 200

    assert (await world.job(job))["infrastructure"]["regions"] == region_names
