"""Keys: what one project has, no other can see; a revoked key opens nothing."""

import asyncio

from sqlalchemy import update

from service.db.tables import api_keys
from service.domain import tokens
from tests.scripted_node import boot
from tests.world import World

JOBS = "/v1/fine_tuning/jobs"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_another_project_sees_nothing_of_a_job_or_its_files(world: World) -> None:
    job = await world.submit()
    await boot(world, job["id"])
    others = bearer(await world.other_key())
    file = f"/v1/files/{job['training_file']}"
    mine = f"{JOBS}/{job['id']}"
    parts = ("events", "checkpoints", "attempts", "cost", "metrics", "logs", "model", "model/x")
    paths = [("GET", mine), ("GET", file), ("GET", f"{file}/content"), ("DELETE", file)]
    paths += [("GET", f"{mine}/{part}") for part in parts]
    paths += [("POST", f"{mine}/{verb}") for verb in ("cancel", "pause", "resume")]

    for method, path in paths:
        answer = await world.call(method, path, headers=others)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] in ("job_not_found", "file_not_found"), path

    assert (await world.job(job["id"]))["status_reason"]["code"] != "cancelling"


async def test_lists_and_cursors_stay_within_the_project(world: World) -> None:
    job = await world.submit()
    others = bearer(await world.other_key())

    for path, cursor in ((JOBS, job["id"]), ("/v1/files", job["training_file"])):
        assert (await world.call("GET", path, headers=others)).json()["data"] == []
        beyond = await world.call("GET", path, params={"after": cursor}, headers=others)
        assert beyond.json()["error"]["code"] == "unknown_cursor"


async def test_a_job_cannot_train_on_another_projects_file(world: World) -> None:
    body = {"model": "rekindle/tiny-llama", "training_file": await world.upload()}

    answer = await world.call("POST", JOBS, json=body, headers=bearer(await world.other_key()))

    assert answer.json()["error"]["code"] == "file_not_found"


async def test_two_keys_of_one_project_see_the_same(world: World) -> None:
    job = await world.submit()
    second = bearer(await world.other_key("tests"))

    assert (await world.call("GET", f"{JOBS}/{job['id']}", headers=second)).status_code == 200


async def test_a_revoked_key_opens_nothing(world: World) -> None:
    await world.upload()
    async with world.engine.begin() as conn:
        mine = api_keys.c.sha256 == tokens.digest(world.key)
        await conn.execute(update(api_keys).where(mine).values(revoked_at=world.clock()))

    answer = await world.call("GET", "/v1/files")

    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_crowd_larger_than_the_connection_pool_is_served(world: World) -> None:
    job = await world.submit()

    async with asyncio.timeout(25):  # the pool would give up after 30 s
        shown = await asyncio.gather(*(world.job(job["id"]) for _ in range(60)))

    assert {s["id"] for s in shown} == {job["id"]}
