"""The secret that node tokens are derived from is changed while jobs train."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest

from service.api.app import make_app
from service.domain import tokens
from tests.nodes.scripted_node import ScriptedNode, boot, start_training
from tests.world import SECRET, World, client
from trainer.contract import NodePhase

NEW = "another secret that is long enough for it"
STEPS = {
    "before": (SECRET, ""),
    "both accepted": (SECRET, NEW),
    "new one signs": (NEW, SECRET),
    "old one gone": (NEW, ""),
}


@pytest.fixture
async def replicas(world: World) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """Yield a replica for each step of a rotation."""
    async with AsyncExitStack() as stack:
        yield {
            step: await stack.enter_async_context(
                client(make_app(replace(world.parts, secret=secret, accepted_secret=accepted)))
            )
            for step, (secret, accepted) in STEPS.items()
        }


def at(node: ScriptedNode, http: httpx.AsyncClient) -> ScriptedNode:
    """Return the same node, which speaks to another replica from now on."""
    node.world = replace(node.world, http=http)
    return node


async def test_a_job_trains_on_while_the_secret_is_rotated_replica_by_replica(
    world: World, replicas: dict[str, httpx.AsyncClient]
) -> None:
    job, (first, second), number = await start_training(world)
    step = 1

    # While replicas are replaced, nodes meet those before and after.
    for name in ("before", "both accepted", "new one signs", "both accepted", "new one signs"):
        for node in (first, second):
            step += 1
            response = await at(node, replicas[name]).say(NodePhase.RUNNING, number, step=step)
            assert response.status_code == 200, (name, response.text)
            node.directive_seq = 0  # so that the newest one is news, and hear() does not wait
            await node.hear()
    assert (await first.register()).status_code == 200, "its bootstrap token is an old one"
    assert (await first.say(NodePhase.RUNNING, number, step=step)).status_code == 200
    at(first, replicas["both accepted"])
    assert (await first.say(NodePhase.RUNNING, number, step=step)).status_code == 200

    assert (await world.job(job))["status"] == "running"
    assert len(await world.attempts_of(job)) == 1


async def test_a_secret_that_is_gone_opens_nothing(
    world: World, replicas: dict[str, httpx.AsyncClient]
) -> None:
    job = (await world.submit())["id"]
    old, new = await boot(world, job)
    await at(new, replicas["new one signs"]).register()

    for name, statuses in (("old one gone", (401, 200)), ("before", (200, 401))):
        status_codes = [
            (await at(node, replicas[name]).say(NodePhase.READY)).status_code for node in (old, new)
        ]
        assert tuple(status_codes) == statuses, name
    assert (await at(old, replicas["old one gone"]).register()).status_code == 401


async def test_no_token_is_derived_from_an_empty_secret(world: World) -> None:
    job = (await world.submit())["id"]
    node, _ = await boot(world, job)
    assert node.seat is not None
    node.seat = replace(node.seat, node_token=tokens.node_token("", node.seat.node_id))

    assert (await node.say(NodePhase.READY)).status_code == 401
