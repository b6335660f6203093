"""How a job is followed: its version, ETags, and polls that wait for news."""

import asyncio
from typing import Any

import pytest

from tests.nodes.scripted_node import boot, commit, committed, metrics, train
from tests.world import JOBS, World
from trainer.contract import NodePhase

Json = dict[str, Any]


async def read_job(world: World, job: Json, **options: Any) -> Any:  # noqa: ANN401 - JSON
    response = await world.call("GET", f"{JOBS}/{job['id']}", **options)
    assert response.status_code == 200, response.text
    return response.json()


async def test_every_news_of_a_job_raises_its_version(world: World) -> None:
    job = await world.submit()
    versions = [job["version"]]
    nodes = await boot(world, job["id"])
    versions.append((await world.job(job["id"]))["version"])
    number = await train(world, nodes, step=1)
    versions.append((await world.job(job["id"]))["version"])
    await nodes[0].say(NodePhase.RUNNING, number, step=2, metrics=(metrics(2),))
    versions.append((await world.job(job["id"]))["version"])
    await commit(world, job["id"], committed(2, number))
    await world.tick()
    versions.append((await world.job(job["id"]))["version"])

    assert versions == sorted(set(versions))
    assert (await world.job(job["id"]))["version"] == versions[-1]
    assert (await world.job(job["id"]))["updated_at"] == int(world.clock().timestamp())


async def test_an_attempt_that_is_written_is_news(world: World) -> None:
    job = await world.submit()
    await world.jobs.run_once()
    before = await world.job(job["id"])
    await world.jobs.run_once()

    after = await world.job(job["id"])

    assert (before["attempts"]["count"], after["attempts"]["count"]) == (0, 1)
    assert after["version"] > before["version"]


async def test_a_request_with_the_newest_version_is_answered_304(world: World) -> None:
    job = await world.submit()
    path = f"{JOBS}/{job['id']}"
    first = await world.call("GET", path)
    tag = first.headers["etag"]

    not_modified = await world.call("GET", path, headers={"if-none-match": f'"1", {tag}'})
    await world.call("POST", f"{path}/cancel")
    response = await world.call("GET", path, headers={"if-none-match": tag})

    assert tag == f'W/"{first.json()["version"]}"'
    assert (not_modified.status_code, not_modified.content, not_modified.headers["etag"]) == (
        304,
        b"",
        tag,
    )
    assert response.status_code == 200
    assert response.headers["etag"] != tag


@pytest.mark.parametrize("change", ["query", "etag", "prefer"])
async def test_a_long_poll_is_answered_as_soon_as_there_is_news(world: World, change: str) -> None:
    listening = asyncio.create_task(world.listener.run())
    job = await world.submit()
    params: dict[str, Json] = {
        "query": {"params": {"wait": 50, "version": job["version"]}},
        "etag": {"params": {"wait": 50}, "headers": {"if-none-match": f'"{job["version"]}"'}},
        "prefer": {
            "params": {"version": job["version"]},
            "headers": {"prefer": "respond-async, wait=50"},
        },
    }
    waiter = asyncio.create_task(read_job(world, job, **params[change]))
    await asyncio.wait({waiter}, timeout=0.5)
    was_waiting = not waiter.done()
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")

    view = await asyncio.wait_for(waiter, timeout=120)
    listening.cancel()

    assert was_waiting
    assert view["version"] > job["version"]
    assert view["phase"] == "cancelling"


async def test_a_poll_without_news_is_200_and_an_old_version_at_once(world: World) -> None:
    job = await world.submit()
    tag = {"if-none-match": f'"{job["version"]}"'}

    assert (await read_job(world, job, params={"wait": "0.1"}, headers=tag)) == job
    for params in ({"wait": 50}, {"wait": 50, "version": job["version"] - 1}):
        assert (await read_job(world, job, params=params))["version"] == job["version"]


async def test_an_answer_comes_before_the_client_gives_up(world: World) -> None:
    job = await world.submit()

    view = await asyncio.wait_for(
        read_job(
            world,
            job,
            params={"wait": 60, "version": job["version"]},
            headers={"x-stainless-read-timeout": "5.1"},
        ),
        timeout=120,
    )

    assert view["version"] == job["version"]
