"""What jobs have stored is metered: by tier, once, and in the job's cost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from service.api.app import make_app
from service.db.money import storage_cost
from service.domain.money.storage_cost import StoragePrices, quote_rehydration
from service.domain.storage.access_tiers import (
    GIB,
    SMALL,
    AccessTier,
    ArchivePriority,
    StorageAccount,
)
from service.pricing.fixed import FixedPrices
from service.pricing.source import PricesUnavailable
from service.pricing.storage_prices import TABLE
from tests.integration.stored_jobs import (
    finish_job,
    make_meters,
    make_moves,
    start_with_checkpoints,
)
from tests.nodes.scripted_node import body
from tests.world import PRICE, SPOT, World, client

JOBS = "/v1/fine_tuning/jobs"
# A price at which 200 KiB are worth money.
DEAR = StoragePrices(
    tiers={
        t: replace(p, month=p.month * 1000 * GIB / 2**20, retrieval=p.retrieval * 10_000)
        for t, p in TABLE.tiers.items()
    },
    high_reads=Decimal(1),
    high_retrieval=Decimal(1000),
    source="made up",
    as_of=TABLE.as_of,
)
PRICES = FixedPrices({}, DEAR)


@pytest.fixture
async def dear(world: World) -> AsyncIterator[World]:
    """Yield a world in which moves between tiers are expensive."""
    prices = FixedPrices({SPOT: PRICE}, DEAR)
    async with client(make_app(replace(world.parts, prices=prices))) as world.http:
        yield world


async def make_model(world: World, tier: AccessTier) -> tuple[str, list[str]]:
    """Return a job that is over, and the large files of its model, both in that tier."""
    job = await finish_job(world)
    (first,) = [b.name for b in await world.store.list_stored(job, "models/") if b.size > SMALL]
    files = [first, first.replace("model.", "second.")]
    await world.store.write(job, files[1], bytes(200 * 1024))
    for file in files:
        await world.store.set_tier(job, file, tier)
    return job, files


async def move_model(world: World, job: str, **request: str) -> Decimal:
    """Move the model; return what is charged for it."""
    response = await world.call("POST", f"{JOBS}/{job}/model/tier", json=request)
    return Decimal(body(response)["cost"]["charged"])


async def paid_charges(world: World, job: str) -> Decimal:
    """All that was paid for moves: nothing is metered here."""
    return Decimal((await read_cost(world, job))["storage"])


async def read_cost(world: World, job: str) -> dict[str, Any]:
    return body(await world.call("GET", f"{JOBS}/{job}/cost"))


async def read_ledger(world: World, job: str) -> list[Any]:
    async with world.engine.connect() as conn:
        return await storage_cost.of_job(conn, job)


async def test_what_lies_there_costs_by_the_month_and_is_in_what_was_spent(world: World) -> None:
    job = await finish_job(world)
    await world.tick(12)
    await make_meters(world, PRICES).run_once()
    before = await read_cost(world, job)
    assert before["final"]  # of machines: storage goes on
    world.clock.advance(hours=730)
    after = await read_cost(world, job)
    spent_in_list = body(await world.call("GET", JOBS))["data"][0]["cost"]["spent"]

    stored = sum(b.size for b in await world.store.list_stored(job))
    month = stored * DEAR.tiers[AccessTier.HOT].month / GIB
    assert Decimal(after["storage"]) - Decimal(before["storage"]) == pytest.approx(
        month, abs=Decimal("0.0002")
    )
    assert Decimal(after["storage_a_month"]) == pytest.approx(month, abs=Decimal("0.0001"))
    machines = Decimal(after["spent"]) - Decimal(after["storage"])
    assert machines == pytest.approx(
        Decimal(before["spent"]) - Decimal(before["storage"]), abs=Decimal("0.0002")
    )
    assert after["saved"] == before["saved"]
    assert spent_in_list == after["spent"]


async def test_two_replicas_and_a_repeated_look_count_nothing_twice(world: World) -> None:
    job = await finish_job(world)

    counts = await asyncio.gather(*(make_meters(world, PRICES).run_once() for _ in range(4)))
    world.clock.advance(days=2)
    repeated = await asyncio.gather(*(make_meters(world, PRICES).run_once() for _ in range(4)))

    assert (sum(counts), sum(repeated)) == (1, 1)
    (row,) = await read_ledger(world, job)
    assert (row.tier, row.ended_at) == (AccessTier.HOT, None)


async def test_a_look_that_comes_too_late_writes_nothing(world: World) -> None:
    job = await finish_job(world)
    slow_meters, quick_meters = make_meters(world, PRICES), make_meters(world, PRICES)

    async with world.engine.begin() as conn:
        (claim,) = await storage_cost.claim_due(conn, world.clock(), 1)
    world.clock.advance(seconds=30)  # the lease is over
    assert await quick_meters.run_once() == 1
    with pytest.raises(Exception, match="storage_meters"):
        async with world.engine.begin() as conn:
            await storage_cost.record(conn, claim, [], world.clock(), world.clock())

    assert await slow_meters.run_once() == 0
    assert len(await read_ledger(world, job)) == 1


async def test_after_a_move_each_tier_has_its_own_price(world: World) -> None:
    job = await finish_job(world)
    await make_meters(world, PRICES).run_once()
    await world.call("POST", f"{JOBS}/{job}/model/tier", json={"tier": "archive"})
    while await make_moves(world).run_once():
        pass
    assert await make_meters(world, PRICES).run_once() == 1  # at once, and not tomorrow

    open_rows = {r.tier: r for r in await read_ledger(world, job) if r.ended_at is None}

    assert set(open_rows) == {AccessTier.HOT, AccessTier.ARCHIVE}
    assert open_rows[AccessTier.ARCHIVE].size == 200 * 1024
    assert open_rows[AccessTier.ARCHIVE].month == DEAR.tiers[AccessTier.ARCHIVE].month


ROUNDED = Decimal("0.0002")  # as what is shown


async def test_a_request_that_was_replaced_before_anything_moved_costs_nothing(dear: World) -> None:
    job, _ = await make_model(dear, AccessTier.COLD)
    first = await move_model(dear, job, tier="hot")
    dear.clock.advance(days=20)
    second = await move_model(dear, job, tier="cool")

    assert first > 1
    assert await paid_charges(dear, job) == second


async def test_a_request_that_was_replaced_half_way_costs_what_has_moved(dear: World) -> None:
    job, files = await make_model(dear, AccessTier.COLD)
    first = await move_model(dear, job, tier="hot")
    await make_moves(dear).run_once()
    await dear.store.set_tier(job, files[1], AccessTier.COLD)  # as if it had not come so far
    second = await move_model(dear, job, tier="archive")

    assert await paid_charges(dear, job) == pytest.approx(first / 2 + second, abs=ROUNDED)


async def test_a_move_of_what_was_deleted_is_paid_only_if_it_had_begun(dear: World) -> None:
    (early_job, _), (late_job, _) = [await make_model(dear, AccessTier.ARCHIVE) for _ in range(2)]
    dear.store.slow_archive = True
    await move_model(dear, early_job, tier="hot")
    for blob in await dear.store.list_stored(early_job, "models/"):
        await dear.store.delete(early_job, blob.name)
    charge = await move_model(dear, late_job, tier="hot")
    await carry_out(dear)
    for blob in await dear.store.list_stored(late_job, "models/"):
        await dear.store.delete(late_job, blob.name)
    dear.clock.advance(minutes=6)
    await carry_out(dear)

    assert charge > 0
    assert [await paid_charges(dear, job) for job in (early_job, late_job)] == [0, charge]
    assert (await dear.event_codes(late_job))[-1] == "storage.tier_gone"


async def test_tier_and_cost_name_the_same_storage_cost_at_every_moment(dear: World) -> None:
    job, files = await make_model(dear, AccessTier.HOT)

    async def named() -> tuple[str, str]:
        storage_view = body(await dear.call("GET", f"{JOBS}/{job}/storage"))
        return storage_view["a_month"], (await read_cost(dear, job))["storage_a_month"]

    initial = await named()
    await make_meters(dear, PRICES).run_once()
    metered = await named()
    await dear.store.set_tier(job, files[0], AccessTier.COOL)  # the meter has not seen it yet
    moved = await named()

    assert initial[0] == initial[1]
    assert metered[0] == metered[1] != "0.0000"
    assert moved[0] == moved[1]


async def test_hurrying_costs_more_for_what_is_not_back_yet_only(dear: World) -> None:
    job, files = await make_model(dear, AccessTier.ARCHIVE)
    blobs = {b.name: b for b in await dear.store.list_stored(job, "models/")}
    standard_cost, high_cost = (
        quote_rehydration([blobs[files[1]]], p, DEAR).cost for p in ArchivePriority
    )
    dear.store.slow_archive = True
    before = await move_model(dear, job, tier="hot")
    await carry_out(dear)
    dear.store.slow_archive = False
    await dear.store.set_tier(job, files[0], AccessTier.HOT)  # the first is back

    after = await move_model(dear, job, tier="hot", priority="high")
    repeated = await move_model(dear, job, tier="hot", priority="high")

    assert high_cost > 2 * standard_cost
    assert after - before == pytest.approx(high_cost - standard_cost, abs=ROUNDED)
    assert repeated == after == await paid_charges(dear, job)


async def carry_out(world: World) -> None:
    while await make_moves(world).run_once():
        pass


async def test_what_is_gone_costs_nothing_any_more(world: World) -> None:
    job = await finish_job(world)
    await make_meters(world, PRICES).run_once()
    await world.store.delete_container(job)
    world.clock.advance(days=1)
    await make_meters(world, PRICES).run_once()
    storage = (await read_cost(world, job))["storage"]
    world.clock.advance(days=9)

    cost = await read_cost(world, job)
    assert (cost["storage"], cost["storage_a_month"]) == (storage, "0.0000")


@dataclass
class ClosedList(FixedPrices):
    """A price list that nobody can read."""

    def __init__(self) -> None:
        super().__init__({})

    async def storage(self, account: StorageAccount) -> StoragePrices:
        raise PricesUnavailable(f"closed, {account.region} too")


async def test_without_a_price_list_what_lies_there_goes_on_at_the_price_it_has(
    world: World,
) -> None:
    job = await finish_job(world)
    await make_meters(world, PRICES).run_once()
    world.clock.advance(days=1, seconds=1)

    assert await make_meters(world, ClosedList()).run_once() == 1
    assert [r.month for r in await read_ledger(world, job)] == [DEAR.tiers[AccessTier.HOT].month]


async def test_a_job_that_goes_on_is_looked_at_hourly_and_one_that_is_over_daily(
    world: World,
) -> None:
    await finish_job(world)
    await start_with_checkpoints(world)
    counts = []
    for hours in (0, 1, 1, 22):
        world.clock.advance(hours=hours, seconds=1)
        counts.append(await make_meters(world).run_once())

    assert counts == [2, 1, 1, 2]
