"""A supervisor that is started a second time on an empty disk, as Azure ML does after a preemption.

Of two processes of one node at most one ever starts a generation, and only it can commit.
"""

import httpx
import pytest

from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, start_training, train
from tests.world import World
from trainer.contract import DirectiveKind, NodePhase, StaleGeneration


async def second_start(first: ScriptedNode) -> ScriptedNode:
    """Register the same machine again, on an empty disk."""
    second = ScriptedNode(first.world, first.attempt_id, first.vm_id, boot_id="boot-2")
    assert (await second.register()).status_code == 200
    return second


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_restarted_supervisor_gets_no_start_of_a_running_generation(world: World) -> None:
    nodes = await boot(world, (await world.submit())["id"])
    number = await train(world, nodes, step=1)
    second = await second_start(nodes[0])
    told = await second.hear()

    assert second.seat is not None
    assert (second.seat.epoch, told.kind, told.number) == (2, DirectiveKind.STOP, number)


async def test_what_the_first_one_saved_cannot_be_committed_once_the_second_one_trains(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(1, number))
    second = await second_start(nodes[0])
    await second.say(NodePhase.STOPPED, number)
    await world.tick()
    await nodes[1].say(NodePhase.STOPPED, number)
    later = await train(world, [second, nodes[1]], step=2)

    assert later == number + 1
    with pytest.raises(StaleGeneration):
        await commit(world, job, committed(3, number))
    await commit(world, job, committed(3, later))


async def test_only_the_supervisor_that_registered_last_gets_a_start(world: World) -> None:
    nodes = await boot(world, (await world.submit())["id"])
    first, second = nodes[0], await second_start(nodes[0])
    await second.say(NodePhase.READY)
    await world.tick()

    assert (await second.hear()).kind is DirectiveKind.START
    assert refusal(await first.ask()) == (409, "stale_epoch")
    stale = await first.say(NodePhase.READY)
    assert refusal(stale) == (409, "stale_epoch")
    assert stale.headers["x-should-retry"] == "false"
    assert (await second.say(NodePhase.READY)).status_code == 200
