"""Clusters of a workspace in the audit and in the sweep, also while the workspace is silent."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from contract.choices import Engine
from service.api.app import make_app
from service.cloud.engines import Engines
from service.cloud.fake import FakeCloud
from service.cloud.provider import Throttled
from service.db.attempts import attempts
from service.db.schema import tables
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.pricing.fixed import FixedPrices
from tests.nodes.scripted_node import boot
from tests.world import PRICE, SPOT, World, client


def _with_workspace(world: World) -> FakeCloud:
    """Return a workspace beside the world's scale sets, as the API and the sweep see it."""
    workspace = FakeCloud(now=world.clock, owner=world.cloud.owner)
    both = Engines(scale_sets=world.cloud, azureml=workspace)
    world.orphans = replace(world.orphans, cloud=both, limited_cloud=None)
    prices = FixedPrices({SPOT: PRICE, replace(SPOT, engine=Engine.AZUREML): PRICE})
    parts = replace(world.parts, cloud=both, prices=prices)
    world.http = client(make_app(parts))
    return workspace


async def _cluster_of_nobody(world: World, workspace: FakeCloud) -> None:
    """Create a cluster that no attempt has, beside one that an attempt has."""
    job = await world.submit()
    await boot(world, job["id"])
    async with world.engine.begin() as conn:
        (row,) = await attempts.of_job(conn, job["id"])
        await conn.execute(update(tables.attempts).values(engine=Engine.AZUREML))
    spec = world.attempts.specs.spec(row)
    offering = replace(spec.offering, engine=Engine.AZUREML)
    for name in (spec.name, "rk-nobodys"):
        await workspace.create(replace(spec, name=name, offering=offering))
    world.clock.advance(minutes=5)


async def test_the_audit_says_that_a_silent_workspace_was_left_out_and_misses_none_of_it(
    world: World,
) -> None:
    workspace = _with_workspace(world)
    await _cluster_of_nobody(world, workspace)
    whole = (await world.call("GET", "/v1/organization/audit")).json()
    workspace.fail_next = [Throttled("the workspace is busy")]
    without = (await world.call("GET", "/v1/organization/audit")).json()

    assert (whole["summary"]["leaks"], whole["summary"]["unseen"]) == (1, None)
    assert [s["per_hour"] for s in whole["data"] if s["id"] == "rk-nobodys"] == ["16.8800"]
    unseen = without["summary"]["unseen"]
    assert "could not be listed and are left out: the workspace is busy" in unseen
    assert "missing" not in {s["standing"] for s in without["data"]}


async def test_a_cluster_that_will_not_go_is_not_forgotten_while_its_workspace_is_silent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = _with_workspace(world)
    await _cluster_of_nobody(world, workspace)
    workspace.failing_deletes = 100
    for _ in range(2):
        await world.orphans.run_once()
    world.clock.advance(seconds=TOO_LONG_TO_DELETE.total_seconds())
    workspace.fail_next = [Throttled("the workspace is busy")]
    await world.orphans.run_once()
    world.clock.advance(seconds=60)
    await world.orphans.run_once()

    assert "leak.will_not_die" in [record.message for record in caplog.records]
