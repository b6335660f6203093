"""/internal/nodes/{id}/directive: a directive is heard at once, and no news after a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from service.api.app import make_app
from service.db.attempts import nodes as node_rows
from tests.integration.nodes.test_protocol import JOBS, boot_job
from tests.nodes.scripted_node import ScriptedNode
from tests.waiting import until
from tests.world import World, client
from trainer.contract import Directive, DirectiveKind


@pytest.fixture
async def polled(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Yield the service with a long poll of ten seconds and its listener at work."""
    app = make_app(replace(world.parts, long_poll=timedelta(seconds=10)))
    listening = asyncio.create_task(world.listener.run())
    async with client(app) as http:
        yield http
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


async def poll_directive(http: httpx.AsyncClient, node: ScriptedNode, **params: int) -> Directive:
    assert node.seat is not None
    answer = await http.get(
        f"/internal/nodes/{node.seat.node_id}/directive",
        params={"after": node.directive_seq, "epoch": node.seat.epoch, "wait": 20, **params},
        headers={"authorization": f"Bearer {node.seat.node_token}"},
    )
    assert answer.status_code == 200, answer.text
    return Directive.from_json(answer.content)


async def until_subscribed(world: World, polls: int) -> None:
    async def count() -> int:
        waiting = world.listener._waiting.items()
        return sum(len(events) for topic, events in waiting if topic.startswith("node:"))

    await until(count, lambda n: n == polls, interval=0.01)


async def test_a_directive_wakes_a_long_poll_within_a_second(
    world: World, polled: httpx.AsyncClient
) -> None:
    nodes = await boot_job(world)
    assert nodes[0].seat is not None
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(poll_directive(polled, nodes[0]))
    await until_subscribed(world, 1)
    async with world.engine.begin() as conn:
        await node_rows.direct_all(conn, {nodes[0].seat.node_id: (DirectiveKind.STOP, 1)})
    given = loop.time()

    directive = await waiting

    assert (directive.kind, directive.number) == (DirectiveKind.STOP, 1)
    assert loop.time() - given < 1.0


async def test_a_hundred_long_polls_hold_no_connection(
    world: World, polled: httpx.AsyncClient
) -> None:
    nodes = await boot_job(world)
    waiting = [asyncio.create_task(poll_directive(polled, nodes[0])) for _ in range(100)]
    await until_subscribed(world, 100)

    assert (await world.call("GET", JOBS)).status_code == 200
    await world.tick()
    assert {d.kind for d in await asyncio.gather(*waiting)} == {DirectiveKind.START}


async def test_without_news_a_long_poll_says_carry_on_and_renews_the_time_to_stop(
    world: World,
) -> None:
    node = (await boot_job(world))[0]
    app = make_app(replace(world.parts, long_poll=timedelta(0)))
    world.clock.advance(minutes=5)

    async with client(app) as http:
        directive = await poll_directive(http, node)

    assert (directive.kind, directive.number) == (DirectiveKind.CARRY_ON, 0)
    assert directive.stop_by == (world.clock() + world.parts.outage).timestamp()
    assert directive.grants is None


async def test_a_node_says_how_long_it_waits_for_a_directive(world: World) -> None:
    node = (await boot_job(world))[0]
    app = make_app(replace(world.parts, long_poll=timedelta(minutes=5)))

    async with client(app) as http, asyncio.timeout(60):
        directive = await poll_directive(http, node, wait=0)

    assert directive.kind is DirectiveKind.CARRY_ON


async def test_grants_are_renewed_when_half_their_life_is_over_then_hourly(world: World) -> None:
    node = (await boot_job(world))[0]
    app = make_app(replace(world.parts, long_poll=timedelta(0)))
    world.clock.advance(hours=13)

    async with client(app) as http:
        directive = await poll_directive(http, node)
        renewed_at = world.clock().timestamp()
        world.clock.advance(minutes=5)
        between = await poll_directive(http, node)  # old grants alone are no news
        world.clock.advance(minutes=55)
        hourly = await poll_directive(http, node)

    assert directive.grants is not None
    assert directive.grants.expires_at > renewed_at + 23 * 3600
    assert between.grants is None
    assert hourly.grants is not None
