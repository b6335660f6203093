"""/internal/nodes: who may speak, what is refused and how, and what a long poll answers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from sqlalchemy import select, update

from service.api.app import make_app
from service.db.attempts import nodes as node_rows
from service.db.schema import tables
from service.domain import tokens
from service.domain.cloud.fleet import Instance, ScaleSet
from tests.nodes.scripted_node import ScriptedNode, boot, say_all, train
from tests.waiting import on, until
from tests.world import SECRET, World, client
from trainer.contract import Directive, DirectiveKind, Heartbeat, NodePhase

JOBS = "/v1/fine_tuning/jobs"


async def provision_machine(world: World) -> ScriptedNode:
    """Return a machine that Azure has made; the attempt has not looked yet."""
    job = await world.submit()

    async def asked_for() -> list[ScaleSet]:
        await world.jobs.run_once()
        await world.attempts.run_once()
        return await world.cloud.list_owned()

    (scale_set,) = await until(asked_for, bool, wait=on(world.clock), interval=15, deadline=300)

    async def machines() -> tuple[Instance, ...]:
        return (await world.cloud.get(scale_set.name)).instances

    (machine, _) = await until(machines, bool, wait=on(world.clock), interval=5, deadline=300)
    (attempt,) = await world.attempts_of(job["id"])
    return ScriptedNode(world, attempt["id"], machine.vm_id)


async def boot_job(world: World) -> list[ScriptedNode]:
    return await boot(world, (await world.submit())["id"])


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def post(world: World, path: str, body: str | bytes, token: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return await world.http.post(path, content=body, headers=headers)


async def test_a_machine_is_welcome_once_azure_lists_it(world: World) -> None:
    node = await provision_machine(world)
    first = await node.register()
    await world.tick()

    second = await node.register()

    assert error(first) == (425, "not_seen_yet")
    assert second.status_code == 200


async def test_machines_that_come_too_early_have_their_attempt_looked_at_once_for_all(
    world: World,
) -> None:
    node = await provision_machine(world)
    c, now = tables.attempts.c, world.clock()
    query = select(c.due_at, c.hints)
    async with world.engine.begin() as conn:
        values = {"seen_at": now, "due_at": now + timedelta(seconds=15)}
        await conn.execute(update(tables.attempts).values(values))
        _, hints = (await conn.execute(query)).one()

    for _ in range(3):
        assert error(await node.register()) == (425, "not_seen_yet")

    async with world.engine.connect() as conn:
        due_at, after = (await conn.execute(query)).one()
    assert (due_at, after) == (now + timedelta(seconds=2), hints)  # it is no news of the attempt


async def test_a_machine_has_its_attempt_looked_at_once_it_names_a_port_and_not_before(
    world: World,
) -> None:
    node = await provision_machine(world)
    await node.register()
    await world.tick()
    c, now = tables.attempts.c, world.clock()
    query = select(c.due_at, c.hints)
    async with world.engine.begin() as conn:
        await conn.execute(update(tables.attempts).values(due_at=now + timedelta(seconds=15)))
        _, hints = (await conn.execute(query)).one()

    directives = []
    for say in (
        node.register,
        partial(node.say, NodePhase.READY),
        partial(node.say, NodePhase.READY),
    ):
        assert (await say()).status_code == 200
        async with world.engine.connect() as conn:
            directives.append(tuple((await conn.execute(query)).one()))

    assert directives == [(now + timedelta(seconds=15), hints), (now, hints + 1), (now, hints + 1)]


async def test_a_heartbeat_of_an_old_generation_is_refused_and_kept(world: World) -> None:
    nodes = await boot_job(world)
    first = await train(world, nodes, step=1)
    await say_all(nodes, NodePhase.FAILED, first, error="ValueError: no")
    await train(world, nodes, step=2)

    refusal = await nodes[0].say(NodePhase.RUNNING, first, step=9)

    assert error(refusal) == (409, "stale_generation")
    async with world.engine.connect() as conn:
        assert nodes[0].seat is not None
        node = await node_rows.find(conn, nodes[0].seat.node_id)
    assert node is not None
    assert (node.step, node.heartbeat_seq) == (9, nodes[0].seq)


async def test_an_unexpected_error_of_a_node_route_is_a_500(world: World) -> None:
    def broken() -> datetime:
        raise RuntimeError("no clock")

    async with client(make_app(replace(world.parts, now=broken))) as http:
        path, token = "/internal/nodes/N/heartbeat", tokens.node_token(SECRET, "N")
        message = Heartbeat(
            epoch=1, seq=1, phase=NodePhase.READY, generation=0, step=0, free_port=1
        )
        headers = {"authorization": f"Bearer {token}"}
        response = await http.post(path, content=message.to_json(), headers=headers)

    assert error(response) == (500, "internal_error")
    assert response.headers["x-request-id"].startswith("req-")


@pytest.fixture
async def polled(listening_world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Yield the service with a long poll of ten seconds and its listener at work."""
    async with client(
        make_app(replace(listening_world.parts, long_poll=timedelta(seconds=10)))
    ) as http:
        yield http


async def poll_directive(http: httpx.AsyncClient, node: ScriptedNode, **params: int) -> Directive:
    assert node.seat is not None
    response = await http.get(
        f"/internal/nodes/{node.seat.node_id}/directive",
        params={"after": node.directive_seq, "epoch": node.seat.epoch, "wait": 20, **params},
        headers={"authorization": f"Bearer {node.seat.node_token}"},
    )
    assert response.status_code == 200, response.text
    return Directive.from_json(response.content)


async def until_subscribed(world: World, polls: int) -> None:
    async def count() -> int:
        waiters = world.listener._waiting.items()
        return sum(len(events) for topic, events in waiters if topic.startswith("node:"))

    await until(count, lambda n: n == polls, interval=0.01)


async def test_a_directive_wakes_a_long_poll_within_a_second(
    world: World, polled: httpx.AsyncClient
) -> None:
    nodes = await boot_job(world)
    assert nodes[0].seat is not None
    loop = asyncio.get_running_loop()
    waiter = asyncio.create_task(poll_directive(polled, nodes[0]))
    await until_subscribed(world, 1)
    async with world.engine.begin() as conn:
        await node_rows.direct_all(conn, {nodes[0].seat.node_id: (DirectiveKind.STOP, 1)})
    started_at = loop.time()

    directive = await waiter

    assert (directive.kind, directive.number) == (DirectiveKind.STOP, 1)
    assert loop.time() - started_at < 1.0


async def test_a_hundred_long_polls_hold_no_connection(
    world: World, polled: httpx.AsyncClient
) -> None:
    nodes = await boot_job(world)
    polls = [asyncio.create_task(poll_directive(polled, nodes[0])) for _ in range(100)]
    await until_subscribed(world, 100)

    assert (await world.call("GET", JOBS)).status_code == 200
    await world.tick()
    assert {d.kind for d in await asyncio.gather(*polls)} == {DirectiveKind.START}


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
        directive_between = await poll_directive(http, node)  # old grants alone are no news
        world.clock.advance(minutes=55)
        hourly = await poll_directive(http, node)

    assert directive.grants is not None
    assert directive.grants.expires_at > renewed_at + 23 * 3600
    assert directive_between.grants is None
    assert hourly.grants is not None
