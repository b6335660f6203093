"""Grants where the account has no key: nothing revokes them, so they live short and are renewed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from service.api.app import make_app
from service.operations.nodes.grants import Granter
from service.reconciler.attempts.access_policies import AccessPolicies
from tests.nodes.scripted_node import ScriptedNode, boot
from tests.world import World, client
from trainer.contract import Grants

HOUR = timedelta(hours=1)


@pytest.fixture
async def keyless(world: World) -> AsyncIterator[World]:
    """Yield a world whose account has no key, with grants of an hour."""
    world.store.has_access_policies = False
    granter = Granter(engine=world.engine, store=world.store, lifetime=HOUR)
    async with client(make_app(replace(world.parts, granter=granter))) as http:
        before, world.http = world.http, http
        yield world
        world.http = before


def ends(grants: Grants | None) -> datetime:
    """When the URL of the job's container ends."""
    assert grants is not None
    query = parse_qs(urlsplit(grants.job).query)
    assert query["sp"] == ["racwdl"]
    return datetime.strptime(query["se"][0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def seated(node: ScriptedNode) -> Grants:
    assert node.seat is not None
    return node.seat.grants


async def test_a_node_writes_by_a_url_of_an_hour_and_hears_of_a_new_one_at_half_of_it(
    keyless: World,
) -> None:
    job = (await keyless.submit())["id"]
    node = (await boot(keyless, job))[0]
    first = ends(seated(node))
    keyless.clock.advance(seconds=HOUR.total_seconds() / 2 + 1)
    heard = await node.hear()

    assert abs(first - keyless.clock() - HOUR / 2) < timedelta(minutes=2)
    assert ends(heard.grants) == keyless.clock() + HOUR


async def test_a_node_whose_url_ran_out_gets_a_new_one_when_it_registers_again(
    keyless: World,
) -> None:
    job = (await keyless.submit())["id"]
    node = (await boot(keyless, job))[0]
    keyless.clock.advance(seconds=2 * HOUR.total_seconds())
    assert ends(seated(node)) < keyless.clock()
    await node.register()

    assert ends(seated(node)) == keyless.clock() + HOUR


async def test_no_policy_is_written_and_none_is_asked_for_again(keyless: World) -> None:
    job = (await keyless.submit())["id"]
    await boot(keyless, job)
    policies = AccessPolicies(
        engine=keyless.engine, store=keyless.store, lifetime=HOUR, now=keyless.clock
    )

    assert await policies.run_once() == []
    assert keyless.store.policies == {}
