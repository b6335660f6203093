"""One replica lists all scale sets; whichever looks at what has changed sees the change."""

from dataclasses import replace
from datetime import timedelta

from service.reconciler.cloud.lister import Lister
from tests.nodes.scripted_node import start_training
from tests.world import World

EVERY = timedelta(seconds=10)


def lister(world: World) -> Lister:
    return Lister(engine=world.engine, cloud=world.cloud, interval=EVERY, now=world.clock)


async def test_a_replica_with_an_older_list_sees_the_machine_that_another_one_misses(
    world: World,
) -> None:
    job, _, _ = await start_training(world)
    asks, looks = lister(world), lister(world)
    await asks.run_once()
    await looks.run_once()
    world.attempts = replace(world.attempts, lister=looks)
    world.clock.advance(seconds=15)
    await world.attempts.run_once()  # so it is left alone for a while
    (attempt,) = await world.attempts_of(job)
    world.cloud.evict("rk-" + attempt["id"].removeprefix("att-"))
    world.clock.advance(seconds=1)
    before = looks.newest_list
    await asks.run_once()

    await world.attempts.run_once()

    listed = (await world.call("GET", f"/v1/fine_tuning/jobs/{job}/events")).json()["data"]
    assert looks.fresh_list() is before, "it has read no newer list, and believes its own"
    assert {e["code"] for e in listed} & {"generation.halted", "attempt.terminating"}
