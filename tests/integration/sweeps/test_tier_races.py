"""Who asks for a tier while others do, or while a move goes on: the last word holds, once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from service.api.app import make_app
from service.db.core.leases import LEASE
from service.domain.storage.access_tiers import TieredBlob
from service.storage.fake import MemoryStore
from tests.integration.stored_jobs import finish_job, make_moves
from tests.integration.sweeps.test_tiers import JOBS, carry_out, codes, folder, request_move
from tests.nodes.scripted_node import body
from tests.world import World, client


async def test_asking_twice_moves_once(world: World) -> None:
    job = await finish_job(world)

    responses = await asyncio.gather(*(request_move(world, job, tier="cool") for _ in range(5)))
    await carry_out(world)
    repeated = body(await request_move(world, job, tier="cool"))

    assert len({body(a)["id"] for a in responses}) == 1
    assert repeated["id"] is None
    assert await codes(world, job) == ["storage.tier_asked", "storage.tier_changed"]


async def test_another_request_takes_the_place_of_the_first(world: World) -> None:
    job = await finish_job(world)

    await request_move(world, job, tier="cool")
    steps = await make_moves(world).claim(10)
    await request_move(world, job, tier="cold")
    for step in steps:
        await step()  # it had claimed the first request, and writes nothing more of it
    world.clock.advance(seconds=10)
    await carry_out(world)

    assert (await folder(world, job))["tier"] == "cold"
    assert await codes(world, job) == [
        "storage.tier_asked",
        "storage.tier_asked",
        "storage.tier_changed",
    ]


@dataclass
class CountingStore(MemoryStore):
    """Counts the orders for each blob."""

    orders: Counter[str] = field(default_factory=Counter)

    async def set_tier(self, *order: Any) -> None:  # noqa: ANN401 - as the base class
        self.orders[order[1]] += 1
        await super().set_tier(*order)


async def test_one_of_two_replicas_moves_a_folder(world: World) -> None:
    job = await finish_job(world)
    counting = CountingStore(**vars(world.store))
    world.store = counting
    await request_move(world, job, tier="cold")

    for _ in range(3):
        await asyncio.gather(*(make_moves(world).run_once() for _ in range(4)))

    assert set(counting.orders.values()) == {1}
    assert await codes(world, job) == ["storage.tier_asked", "storage.tier_changed"]


@dataclass
class InterruptedStore(MemoryStore):
    """While the first order is on its way to Blob, something else happens."""

    meanwhile: Callable[[], Awaitable[object]] | None = None
    orders: int = 0

    async def set_tier(self, *order: Any) -> None:  # noqa: ANN401 - as the base class
        self.orders += 1
        if self.orders == 1 and self.meanwhile:
            await self.meanwhile()
        await super().set_tier(*order)


async def test_what_was_asked_last_holds_though_nothing_had_moved_yet(world: World) -> None:
    job = await finish_job(world)
    path = (await folder(world, job))["path"]
    for name in ("second", "third"):
        await world.store.write(job, f"{path}/{name}.safetensors", bytes(200 * 1024))
    responses = []

    async def change_of_mind() -> None:
        responses.append(body(await request_move(world, job, tier="hot")))

    world.store = interrupted = InterruptedStore(**vars(world.store), meanwhile=change_of_mind)
    await request_move(world, job, tier="archive")
    await carry_out(world)
    orders = interrupted.orders
    view = await folder(world, job)
    world.clock.advance(seconds=7)
    await carry_out(world)

    assert orders == 1  # what was on its way, and none after it
    assert responses[0]["id"] is not None  # it is not there already: an order is on its way
    assert (view["tier"], view["moving_to"]) == ("archive", "hot")
    assert (await folder(world, job))["tier"] == "hot"
    assert (await codes(world, job))[-1] == "storage.tier_changed"


async def test_an_order_that_hangs_is_over_before_another_request_begins(world: World) -> None:
    job = await finish_job(world)
    await request_move(world, job, tier="archive")
    hanging = InterruptedStore(**vars(world.store), meanwhile=asyncio.Event().wait)

    assert await replace(make_moves(world), store=hanging, timeout=0.01).run_once() == 1

    assert make_moves(world).timeout < LEASE.total_seconds()
    assert (await codes(world, job))[-1] == "storage.tier_delayed"


@dataclass
class ListedStore(MemoryStore):
    """Right after it was listed, something else happens."""

    after: Callable[[], Awaitable[object]] | None = None

    async def list_stored(
        self, container: str, prefix: str = "", *, everything: bool = False, most: int | None = None
    ) -> list[TieredBlob]:
        blobs = await super().list_stored(container, prefix, everything=everything, most=most)
        after, self.after = self.after, None
        if after:
            await after()
        return blobs


async def test_a_tier_that_another_request_has_already_set_is_not_requested_again(
    world: World,
) -> None:
    job = await finish_job(world)

    async def quick() -> None:
        await request_move(world, job, tier="cool")
        await carry_out(world)

    slow_store = ListedStore(**vars(world.store), after=quick)
    async with client(make_app(replace(world.parts, store=slow_store))) as http:
        key = {"authorization": f"Bearer {world.key}"}
        path = f"{JOBS}/{job}/model/tier"
        response = body(await http.post(path, json={"tier": "cool"}, headers=key))

    assert (response["id"], response["moves"]["blobs"]) == (None, 0)
    assert await codes(world, job) == ["storage.tier_asked", "storage.tier_changed"]
