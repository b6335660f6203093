"""Jobs that may run on scale sets and in an Azure ML workspace: two offerings in one list."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Engine
from service.cloud.provider import Misconfigured
from service.domain.cloud.fleet import scale_set_name
from tests.clock import Clock
from tests.nodes.scripted_node import boot, evicted, say_all, train
from tests.world import PRICE, SPOT, World, open_world
from trainer.contract import NodePhase

CLUSTER = replace(SPOT, engine=Engine.AZUREML)
LITTLE_MORE = replace(PRICE, hourly=PRICE.hourly + Decimal("0.01"))


@pytest.fixture
async def both(engine: AsyncEngine, database_url: str, clock: Clock) -> AsyncIterator[World]:
    """Scale sets are a little cheaper."""
    table = {SPOT: PRICE, CLUSTER: LITTLE_MORE}
    async with open_world(engine, database_url, clock, table) as world:
        yield world


async def engines(world: World, job: str) -> list[str]:
    return [attempt["engine"] for attempt in await world.attempts_of(job)]


async def until_asked(world: World, job: str, times: int) -> None:
    """Let time pass until the job has had so many attempts."""
    for _ in range(200):
        if len(await world.attempts_of(job)) >= times:
            return
        await world.tick()
    raise AssertionError(await world.attempts_of(job))


@pytest.mark.parametrize("named", list(Engine))
async def test_a_job_is_kept_to_the_engine_that_it_names(both: World, named: Engine) -> None:
    job = await both.submit(infrastructure={"nodes": 2, "engine": named})
    await until_asked(both, job["id"], 1)

    assert await engines(both, job["id"]) == [named]
    assert (await both.job(job["id"]))["infrastructure"]["engine"] == named


@pytest.mark.parametrize(
    ("submitted", "change", "refusal"),
    [
        ("azureml", None, "planned for azureml only"),
        ("azureml", "scale_set", "planned for azureml only"),
        ("azureml", "azureml", ""),
        (None, "azureml", ""),
    ],
)
async def test_the_engine_of_a_job_is_changed_within_its_plan_or_refused(
    both: World, submitted: str | None, change: str | None, refusal: str
) -> None:
    infrastructure = {"nodes": 2} | ({"engine": submitted} if submitted else {})
    job = (await both.submit(infrastructure=infrastructure))["id"]
    path, body = f"/v1/fine_tuning/jobs/{job}", {"infrastructure": {"engine": change}}
    response = await both.call("PATCH", path, json=body)

    engine_name = (await both.job(job))["infrastructure"]["engine"]
    if refusal:
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, "infrastructure.engine")
        assert refusal in error["message"]
        assert engine_name == submitted
    else:
        assert response.status_code == 200
        assert engine_name == change


async def test_a_job_of_either_engine_gets_both_back_when_its_engine_is_lifted(both: World) -> None:
    job = (await both.submit(infrastructure={"nodes": 2}))["id"]
    path = f"/v1/fine_tuning/jobs/{job}"
    for engine in ("azureml", None):
        response = await both.call("PATCH", path, json={"infrastructure": {"engine": engine}})
        assert response.status_code == 200
    await until_asked(both, job, 1)

    assert await engines(both, job) == ["scale_set"]


async def test_an_evicted_job_without_capacity_goes_on_in_the_workspace(both: World) -> None:
    job = (await both.submit())["id"]
    await train(both, await boot(both, job), step=1)
    both.cloud.sold_out.add(SPOT)
    await evicted(both, job)
    await until_asked(both, job, 3)
    await train(both, await boot(both, job), step=1)

    assert await engines(both, job) == ["scale_set", "scale_set", "azureml"]
    assert (await both.job(job))["status"] == "running"


async def test_an_evicted_node_ends_the_attempt_and_leaves_no_cluster(both: World) -> None:
    job = (await both.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    await train(both, await boot(both, job), step=1)
    name = scale_set_name((await both.attempts_of(job))[-1]["id"])
    both.cloud.evict(name)
    await until_asked(both, job, 2)
    await both.tick(60)

    assert (await both.attempts_of(job))[0]["outcome"] == "evicted"
    assert name not in both.cloud.billed_names()


async def test_an_attempt_does_not_end_while_its_workspace_is_not_found(both: World) -> None:
    job = (await both.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    await boot(both, job)
    await both.call("POST", f"/v1/fine_tuning/jobs/{job}/cancel")
    both.cloud.fail_next = [Misconfigured("Azure finds no ML workspace") for _ in range(20)]
    await both.tick(8, seconds=61)
    (attempt,) = await both.attempts_of(job)
    event_rows = (await both.call("GET", f"/v1/fine_tuning/jobs/{job}/events")).json()["data"]
    both.cloud.fail_next.clear()
    await both.tick(8, seconds=61)
    (after,) = await both.attempts_of(job)

    assert (attempt["state"], after["state"]) == ("terminating", "ended")
    assert "attempt.needs_help" in [event["code"] for event in event_rows]
    assert both.cloud.billed_names() == set()


async def test_a_job_that_azure_ml_would_end_saves_and_goes_on_before(
    both: World, clock: Clock
) -> None:
    job = (await both.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    nodes = await boot(both, job)
    number = await train(both, nodes, step=1)
    clock.advance(seconds=(7 * 24 - 2) * 3600)
    await say_all(nodes, NodePhase.RUNNING, number, step=2)
    await both.tick()
    directives = [await node.hear() for node in nodes]

    assert [directive.kind for directive in directives] == ["checkpoint_and_stop"] * 2
