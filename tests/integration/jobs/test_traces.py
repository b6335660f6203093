"""What a life under the real reconcilers leaves behind for the record of Spot capacity."""

from tests.nodes.scripted_node import evicted, start_training
from tests.world import SPOT, World

MINUTES = "/v1/organization/traces?days=1&gap_seconds=60"


async def test_a_hold_an_eviction_and_a_refusal_are_seen_as_they_were(world: World) -> None:
    job, *_ = await start_training(world)
    world.clock.advance(minutes=30)
    await evicted(world, job)
    world.cloud.sold_out = {SPOT}
    await world.tick(20)

    (pool,) = (await world.call("GET", MINUTES)).json()["data"]

    counts, metadata = pool["trace"]["data"], pool["trace"]["metadata"]
    first, last = metadata["seen"][0][0], metadata["seen"][-1][1]
    assert pool["id"] == f"{SPOT.vm_size}@{SPOT.region}"
    assert set(counts[:first]) == {2}  # nobody saw it: as it was first seen
    assert set(counts[first : first + 30]) == {2}
    assert counts[-1] == 0
    assert metadata["prices"] == [[first, "8.440000"]]
    assert first + 30 < last <= len(counts)  # refused at once, and then only now and again
