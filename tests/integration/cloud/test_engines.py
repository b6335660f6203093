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
async def two_engines(engine: AsyncEngine, database_url: str, clock: Clock) -> AsyncIterator[World]:
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
async def test_a_job_is_kept_to_the_engine_that_it_names(two_engines: World, named: Engine) -> None:
    job = await two_engines.submit(infrastructure={"nodes": 2, "engine": named})
    await until_asked(two_engines, job["id"], 1)

    assert await engines(two_engines, job["id"]) == [named]
    assert (await two_engines.job(job["id"]))["infrastructure"]["engine"] == named


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
    two_engines: World, submitted: str | None, change: str | None, refusal: str
) -> None:
    infrastructure = {"nodes": 2} | ({"engine": submitted} if submitted else {})
    job = (await two_engines.submit(infrastructure=infrastructure))["id"]
    path, body = f"/v1/fine_tuning/jobs/{job}", {"infrastructure": {"engine": change}}
    response = await two_engines.call("PATCH", path, json=body)

    engine_name = (await two_engines.job(job))["infrastructure"]["engine"]
    if refusal:
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, "infrastructure.engine")
        assert refusal in error["message"]
        assert engine_name == submitted
    else:
        assert response.status_code == 200
        assert engine_name == change


async def test_a_job_of_either_engine_gets_both_back_when_its_engine_is_lifted(
    two_engines: World,
) -> None:
    job = (await two_engines.submit(infrastructure={"nodes": 2}))["id"]
    path = f"/v1/fine_tuning/jobs/{job}"
    for engine in ("azureml", None):
        response = await two_engines.call(
            "PATCH", path, json={"infrastructure": {"engine": engine}}
        )
        assert response.status_code == 200
    await until_asked(two_engines, job, 1)

    assert await engines(two_engines, job) == ["scale_set"]


async def test_an_evicted_job_without_capacity_goes_on_in_the_workspace(two_engines: World) -> None:
    job = (await two_engines.submit())["id"]
    await train(two_engines, await boot(two_engines, job), step=1)
    two_engines.cloud.sold_out.add(SPOT)
    await evicted(two_engines, job)
    await until_asked(two_engines, job, 3)
    await train(two_engines, await boot(two_engines, job), step=1)

    assert await engines(two_engines, job) == ["scale_set", "scale_set", "azureml"]
    assert (await two_engines.job(job))["status"] == "running"


async def test_an_evicted_node_ends_the_attempt_and_leaves_no_cluster(two_engines: World) -> None:
    job = (await two_engines.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    await train(two_engines, await boot(two_engines, job), step=1)
    name = scale_set_name((await two_engines.attempts_of(job))[-1]["id"])
    two_engines.cloud.evict(name)
    await until_asked(two_engines, job, 2)
    await two_engines.tick(60)

    assert (await two_engines.attempts_of(job))[0]["outcome"] == "evicted"
    assert name not in two_engines.cloud.billed_names()


async def test_an_attempt_does_not_end_while_its_workspace_is_not_found(two_engines: World) -> None:
    job = (await two_engines.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    await boot(two_engines, job)
    await two_engines.call("POST", f"/v1/fine_tuning/jobs/{job}/cancel")
    two_engines.cloud.fail_next = [Misconfigured("Azure finds no ML workspace") for _ in range(20)]
    await two_engines.tick(8, seconds=61)
    (attempt,) = await two_engines.attempts_of(job)
    event_rows = (await two_engines.call("GET", f"/v1/fine_tuning/jobs/{job}/events")).json()[
        "data"
    ]
    two_engines.cloud.fail_next.clear()
    await two_engines.tick(8, seconds=61)
    (after,) = await two_engines.attempts_of(job)

    assert (attempt["state"], after["state"]) == ("terminating", "ended")
    assert "attempt.needs_help" in [event["code"] for event in event_rows]
    assert two_engines.cloud.billed_names() == set()


async def test_a_job_that_azure_ml_would_end_saves_and_goes_on_before(
    two_engines: World, clock: Clock
) -> None:
    job = (await two_engines.submit(infrastructure={"nodes": 2, "engine": "azureml"}))["id"]
    nodes = await boot(two_engines, job)
    number = await train(two_engines, nodes, step=1)
    clock.advance(seconds=(7 * 24 - 2) * 3600)
    await say_all(nodes, NodePhase.RUNNING, number, step=2)
    await two_engines.tick()
    directives = [await node.hear() for node in nodes]

    assert [directive.kind for directive in directives] == ["checkpoint_and_stop"] * 2
