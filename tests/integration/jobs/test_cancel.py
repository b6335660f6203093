"""A cancel works in every state, at once for the user and completely for the machines."""

from collections.abc import Awaitable, Callable

import pytest

from service.cloud.provider import InsufficientCapacity
from service.db.jobs import jobs as rows
from service.domain.states import JOB_TERMINAL, JobState
from tests.nodes.scripted_node import boot, commit, committed, evicted, say_all, train
from tests.world import World
from trainer.contract import NodePhase


async def validating(world: World, job_id: str) -> None:
    """Nothing was done about it yet."""


async def waiting_to_launch(world: World, job_id: str) -> None:
    """Its attempt is written down, and nothing asked of Azure."""
    await world.tick()
    await world.jobs.run_once()


async def provisioning(world: World, job_id: str) -> None:
    """Request the scale set."""
    await world.tick(2)


async def refused(world: World, job_id: str) -> None:
    """Azure had no capacity; the next try is a while off."""
    world.cloud.fail_next = [InsufficientCapacity("sold out", code="AllocationFailed")] * 3
    await world.tick(4)


async def starting(world: World, job_id: str) -> None:
    """Machines are there, and no training yet."""
    await boot(world, job_id)


async def running(world: World, job_id: str) -> None:
    """Let the job train."""
    await train(world, await boot(world, job_id), step=1)


async def recovering(world: World, job_id: str) -> None:
    """Evict a machine before the next attempt exists."""
    await running(world, job_id)
    await evicted(world, job_id)
    await world.tick(1)
    await world.jobs.run_once()


async def paused(world: World, job_id: str) -> None:
    """Pause the job, as its user."""
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=1)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/pause")
    await commit(world, job_id, committed(2, number, "stop"))
    await say_all(nodes, NodePhase.STOPPED, number, step=2)
    await world.tick(30)


STATES: dict[str, tuple[Callable[[World, str], Awaitable[None]], JobState]] = {
    "validating": (validating, JobState.VALIDATING),
    "waiting to launch": (waiting_to_launch, JobState.QUEUED),
    "provisioning": (provisioning, JobState.QUEUED),
    "refused by azure": (refused, JobState.QUEUED),
    "starting": (starting, JobState.QUEUED),
    "running": (running, JobState.RUNNING),
    "recovering": (recovering, JobState.RECOVERING),
    "paused": (paused, JobState.PAUSED),
}


def test_every_state_of_a_live_job_is_in_the_table() -> None:
    assert {state for _, state in STATES.values()} == set(JobState) - JOB_TERMINAL


@pytest.mark.parametrize("name", STATES)
async def test_a_cancel_ends_the_job_and_may_be_repeated_while(world: World, name: str) -> None:
    bring, state = STATES[name]
    job_id = (await world.submit())["id"]
    await bring(world, job_id)
    async with world.engine.connect() as conn:
        before = await rows.find(conn, job_id)

    responses = [
        await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/cancel") for _ in range(2)
    ]
    await world.tick(40)

    assert before is not None
    assert before.state is state
    assert [response.status_code for response in responses] == [200, 200]
    assert (await world.job(job_id))["status"] == "cancelled"
    assert await world.cloud.list_owned() == []
    assert all(a["state"] == "ended" for a in await world.attempts_of(job_id))
