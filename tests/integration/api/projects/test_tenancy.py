"""Keys: what one project has, no other can see; a revoked key opens nothing."""

import asyncio

from tests.world import World

JOBS = "/v1/fine_tuning/jobs"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_lists_stay_within_the_project(world: World) -> None:
    await world.submit()
    others = bearer(await world.other_key())

    for path in (JOBS, "/v1/files"):
        assert (await world.call("GET", path, headers=others)).json()["data"] == []


async def test_two_keys_of_one_project_see_the_same(world: World) -> None:
    job = await world.submit()
    second = bearer(await world.other_key("tests"))

    assert (await world.call("GET", f"{JOBS}/{job['id']}", headers=second)).status_code == 200


async def test_more_requests_than_pooled_connections_are_served(world: World) -> None:
    job = await world.submit()

    async with asyncio.timeout(25):  # the pool would give up after 30 s
        shown = await asyncio.gather(*(world.job(job["id"]) for _ in range(60)))

    assert {s["id"] for s in shown} == {job["id"]}
