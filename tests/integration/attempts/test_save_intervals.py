"""A generation's interval between two saves is chosen when it opens, and stays."""

from typing import Any

import pytest

from service.domain.planning.checkpoint_interval import Cadence, best_interval
from tests.nodes.scripted_node import boot, commit, committed, evicted, metrics, say_all, train
from tests.world import World
from trainer.contract import NodePhase, SaveCost

COST = SaveCost(stall=0.5, upload=2.0, blocks=10)


async def trains_again(world: World, job_id: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """One generation that measures a save and is evicted, and the one after it.

    Returns the generation that opened then, and the interval that was shown before and after.
    """
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=1)
    heartbeat = {"step": 2, "metrics": (metrics(2),), "save_cost": COST}
    await nodes[0].say(NodePhase.RUNNING, number, **heartbeat)
    first = (await world.job(job_id))["checkpoint_interval"]
    await evicted(world, job_id)
    nodes = await boot(world, job_id)
    await train(world, nodes, step=1)
    assert nodes[0].last is not None
    return nodes[0].last.generation, first, (await world.job(job_id))["checkpoint_interval"]


async def test_the_next_generation_saves_by_what_a_save_was_measured_to_cost(world: World) -> None:
    job = await world.submit()
    option = job["plan"]["options"][0]
    generation, first, later = await trains_again(world, job["id"])

    rate = 3 / (2 / option["cadence"]["evictions_per_hour"] + 2 * 0.5 / 3600)
    assert first["seconds"] == option["checkpoint_seconds"]
    assert later["evictions_per_hour"] == pytest.approx(rate, rel=0.01)
    assert later["notices_answered"] == option["cadence"]["answered"]  # its loss is known later
    cadence = Cadence(
        evictions_per_hour=later["evictions_per_hour"],
        answered=later["notices_answered"],
        seconds_per_block=option["cadence"]["seconds_per_block"],
    )
    best = best_interval(cadence, stall=COST.stall, upload=COST.upload, blocks=COST.blocks)
    assert later["seconds"] == pytest.approx(best, rel=0.01)
    assert generation.checkpoint_seconds == later["seconds"]


async def test_an_interval_that_the_user_fixed_holds_in_every_generation(world: World) -> None:
    job = await world.submit(training={"checkpoint_seconds": 60})
    generation, first, later = await trains_again(world, job["id"])

    assert generation.checkpoint_seconds is None
    assert first == later
    assert later["seconds"] == 60.0


async def test_steps_lost_to_an_error_are_no_unanswered_notice(world: World) -> None:
    job = await world.submit()
    share = job["plan"]["options"][0]["cadence"]["answered"]
    steps = []
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    heartbeat = {"step": 2, "metrics": (metrics(2),), "save_cost": COST}
    await nodes[0].say(NodePhase.RUNNING, number, **heartbeat)
    await say_all(nodes, NodePhase.FAILED, number, step=2, error="killed")
    number = await train(world, nodes, step=1)
    for step in (1, 2):
        steps.append((await world.job(job["id"]))["checkpoint_interval"]["notices_answered"])
        await commit(world, job["id"], committed(step, number))
        await evicted(world, job["id"])
        nodes = await boot(world, job["id"])
        number = await train(world, nodes, step=step + 1)
    steps.append((await world.job(job["id"]))["checkpoint_interval"]["notices_answered"])

    assert (await world.job(job["id"]))["progress"]["lost_steps"] == 2
    # What the newest eviction lost is known once its generation has opened.
    assert steps == pytest.approx([share, share, (10 * share + 1) / 11])
