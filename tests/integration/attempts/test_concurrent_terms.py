"""Terms that change, and leases that are lost, while a step asks for prices and weighs them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs import jobs
from service.db.schema import tables
from service.db.spot import market
from service.domain.cloud.fleet import Offering, Price, scale_set_name
from service.domain.errors import LeaseLost
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import PlacementScore
from service.pricing.fixed import FixedPrices
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.integration.money.test_budget_changes import patch_terms
from tests.integration.money.test_deadlines import request_job, until
from tests.nodes.scripted_node import ScriptedNode, boot, metrics, say_all, train
from tests.world import BOTH, SPOT, World
from trainer.contract import NodePhase

JOBS = "/v1/fine_tuning/jobs"
OFFERINGS = BOTH


@dataclass
class Meddled(FixedPrices):
    """Something happens once while prices are asked for."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    def __post_init__(self) -> None:
        super().__init__(BOTH)

    @property
    def waits(self) -> bool:
        """Until somebody asks."""
        return self.meanwhile is not None

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        now, self.meanwhile = self.meanwhile, None
        if now is not None:
            await now()
        return await super().prices(offerings)


@pytest.fixture
def prices() -> Meddled:
    return Meddled()


@pytest.fixture
def world(world: World, prices: Meddled) -> World:
    """Return the service with the prices of `prices`."""
    world.jobs = replace(world.jobs, prices=prices)
    return world


async def keep_training(
    world: World, nodes: list[ScriptedNode], number: int, **fields: float
) -> None:
    """So much time passes, and the nodes still train."""
    world.clock.advance(**fields)
    await say_all(nodes, NodePhase.RUNNING, number, step=1)


async def likely(world: World) -> None:
    """Azure says that there is some Spot."""
    async with world.engine.begin() as conn:
        scores = {SpotPool(SPOT.region, SPOT.vm_size): PlacementScore.HIGH}
        await market.save_scores(conn, scores, 2, world.clock())


async def deadline_changes(world: World, job_id: str) -> tuple[object, ...]:
    """Return what is wanted of the job because of its deadline."""
    c = tables.jobs.c
    query = select(c.at_risk_at, c.moves_since, c.returns_since).where(c.id == job_id)
    async with world.engine.connect() as conn:
        return tuple((await conn.execute(query)).one())


async def paid_for(world: World) -> str:
    """Return a job on demand with time enough to try Spot, which Azure has said twice there is."""
    job = (await request_job(world, deadline=until(world, minutes=40)))["id"]
    nodes = await boot(world, job)
    number = await train(world, nodes, step=1)
    measurement = replace(metrics(1), seconds=1800.0)
    await nodes[0].say(NodePhase.RUNNING, number, step=1, metrics=(measurement,))
    await patch_terms(world, job, deadline=until(world, hours=90))
    await likely(world)
    await world.tick(2, seconds=31)
    await keep_training(world, nodes, number, minutes=12)
    await likely(world)
    return str(job)


async def test_a_job_whose_deadline_moves_during_a_step_stays_on_spot(
    world: World, prices: Meddled
) -> None:
    job = (await request_job(world, deadline=until(world, hours=4)))["id"]
    nodes = await boot(world, job)
    number = await train(world, nodes, step=1)
    await keep_training(world, nodes, number, hours=3, minutes=30)
    prices.meanwhile = lambda: patch_terms(world, job, deadline=until(world, hours=96))
    await world.tick(2, seconds=1)

    assert not prices.waits
    assert await deadline_changes(world, job) == (None, None, None)
    assert "job.deadline_at_risk" not in await world.event_codes(job)


async def test_a_job_set_to_stay_on_demand_during_a_step_is_not_moved_to_spot(
    world: World, prices: Meddled
) -> None:
    job = await paid_for(world)
    prices.meanwhile = lambda: patch_terms(world, job, on_deadline_risk="notify")
    await world.tick(2, seconds=31)

    assert not prices.waits
    assert await deadline_changes(world, job) == (None, None, None)
    assert "job.back_to_spot" not in await world.event_codes(job)


async def test_on_demand_is_left_only_where_the_budget_pays_for_its_return(world: World) -> None:
    job = await paid_for(world)
    went = []
    for dollars in ("115", "1000"):  # both pay for Spot
        await patch_terms(world, job, budget={"amount": dollars})
        await world.tick(2, seconds=1)
        went.append("job.back_to_spot" in await world.event_codes(job))

    assert went == [False, True]


@pytest.mark.parametrize(
    "fields", [{"lease_token": "another"}, {"hints": 7}], ids=["holder", "news"]
)
async def test_a_request_decided_from_an_older_row_is_not_written(
    engine: AsyncEngine, clock: Clock, fields: dict[str, Any]
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        [(claim, _)] = await jobs.claim_due(conn, clock(), 1)
        await conn.execute(update(tables.jobs).values(fields))

    async with engine.connect() as conn:
        with pytest.raises(LeaseLost):
            await jobs.request_if_unchanged(conn, claim, clock(), at_risk_at=clock())
        await conn.rollback()
        at_risk_at = (await conn.execute(select(tables.jobs.c.at_risk_at))).scalar_one()
    assert at_risk_at is None


@pytest.mark.parametrize(
    "changes",
    [
        lambda world, job: patch_terms(world, job, budget={"amount": "0.01"}),
        lambda world, job: world.call("POST", f"{JOBS}/{job}/cancel"),
    ],
    ids=["costs too much", "is cancelled"],
)
async def test_a_job_that_changes_after_its_claim_gets_no_attempt_by_what_was_so_before(
    world: World, prices: Meddled, changes: Callable[[World, str], Awaitable[object]]
) -> None:
    job = (await request_job(world, max_price={"amount": "2"}))["id"]
    async with world.engine.begin() as conn:  # one place, and no limit: it starts in a crowd
        await conn.execute(update(tables.jobs).values(terms={}))
    nodes = await boot(world, job)
    await train(world, nodes, step=1)
    world.cloud.evict(scale_set_name(nodes[0].attempt_id))
    prices.meanwhile = lambda: changes(world, job)
    for _ in range(20):
        if prices.waits:
            await world.tick()
    await world.tick(2)

    assert not prices.waits
    assert len(await world.attempts_of(job)) == 1


async def test_a_start_that_was_weighed_by_itself_is_not_written_on_other_terms(
    world: World, prices: Meddled
) -> None:
    job = (await request_job(world, max_price={"amount": "2"}))["id"]
    prices.meanwhile = lambda: patch_terms(world, job, max_price={"amount": "0.5"})
    for _ in range(20):
        if prices.waits:
            await world.tick(seconds=1)
    await world.tick(seconds=1)  # long before a lease that nobody gives back would end

    assert not prices.waits
    assert await world.attempts_of(job) == []
    async with world.engine.connect() as conn:
        waits_for = (await conn.execute(select(tables.jobs.c.waits_for))).scalar_one()
    assert "0.5" in waits_for
