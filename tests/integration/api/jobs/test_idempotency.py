"""The same request twice is one job: by Idempotency-Key, or because the client says it retries."""

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from service.db.files import files as file_rows
from service.db.jobs import jobs as job_rows
from service.domain.errors import FileInUse
from service.operations.files import files
from tests.waiting import until
from tests.world import JOBS, MODEL, World


async def body(world: World) -> dict[str, Any]:
    return {"model": MODEL, "training_file": await world.upload(), "suffix": "once"}


async def send_job(world: World, job_body: dict[str, Any], **headers: str) -> httpx.Response:
    header_values = {name.replace("_", "-"): value for name, value in headers.items()}
    return await world.call("POST", JOBS, json=job_body, headers=header_values)


async def jobs(world: World) -> list[str]:
    return [job["id"] for job in (await world.call("GET", JOBS)).json()["data"]]


async def test_a_replay_needs_nothing_of_what_the_first_needed(world: World) -> None:
    request = await body(world)
    first = (await send_job(world, request, idempotency_key="k")).json()
    await world.call("POST", f"{JOBS}/{first['id']}/cancel")
    await world.tick(2)
    await world.call("DELETE", f"/v1/files/{request['training_file']}")
    world.clock.advance(days=3)

    second = await send_job(world, request, idempotency_key="k")

    assert (second.status_code, second.json()["id"]) == (200, first["id"])
    assert len(await jobs(world)) == 1


@pytest.mark.parametrize("key", ["k", "None"])
async def test_the_same_key_with_another_body_is_a_conflict(world: World, key: str) -> None:
    request = await body(world)
    await send_job(world, request, idempotency_key=key)

    changed_body = await send_job(world, request | {"suffix": "twice"}, idempotency_key=key)

    assert (changed_body.status_code, changed_body.json()["error"]["code"]) == (
        409,
        "idempotency_key_reused",
    )
    assert changed_body.headers["x-should-retry"] == "false"
    assert len(await jobs(world)) == 1


async def test_the_same_key_at_the_same_time_is_one_job(world: World) -> None:
    request = await body(world)

    responses = await asyncio.gather(
        *(send_job(world, request, idempotency_key="k") for _ in range(8))
    )

    assert {a.status_code for a in responses} == {200}
    assert {a.json()["id"] for a in responses} == set(await jobs(world))
    assert len(await jobs(world)) == 1


async def test_a_key_belongs_to_its_project(world: World) -> None:
    await send_job(world, await body(world), idempotency_key="k")
    own_key, world.key = world.key, await world.other_key()

    other_response = await send_job(world, await body(world), idempotency_key="k")

    assert other_response.status_code == 200
    world.key = own_key
    assert other_response.json()["id"] not in await jobs(world)


async def test_a_retry_of_the_client_finds_the_job_whose_answer_was_lost(world: World) -> None:
    request = await body(world)
    first = await send_job(world, request, x_stainless_retry_count="0")

    retries = await asyncio.gather(
        *(send_job(world, request, x_stainless_retry_count=n) for n in ("1", "2"))
    )

    assert {r.json()["id"] for r in retries} == {first.json()["id"]}


async def test_two_retries_without_a_first_are_one_job(world: World) -> None:
    request = await body(world)

    await asyncio.gather(*(send_job(world, request, x_stainless_retry_count="1") for _ in range(4)))

    assert len(await jobs(world)) == 1


async def test_the_same_request_without_a_retry_header_is_another_job(world: World) -> None:
    request = await body(world)

    await send_job(world, request)
    await send_job(world, request, x_stainless_retry_count="0")

    assert len(await jobs(world)) == 2


async def test_a_retry_of_another_request_is_another_job(world: World) -> None:
    request = await body(world)
    first = await send_job(world, request)

    changed_body = await send_job(world, request | {"suffix": "other"}, x_stainless_retry_count="1")

    assert changed_body.json()["id"] != first.json()["id"]
    assert len(await jobs(world)) == 2


@pytest.mark.parametrize(("seconds", "job_count"), [(15 * 60 - 1, 1), (15 * 60 + 1, 2)])
async def test_a_retry_after_a_quarter_of_an_hour_is_no_retry(
    world: World, seconds: int, job_count: int
) -> None:
    request = await body(world)
    await send_job(world, request)
    world.clock.advance(seconds=seconds)

    await send_job(world, request, x_stainless_retry_count="1")

    assert len(await jobs(world)) == job_count


async def test_a_file_that_a_job_is_just_taking_is_not_deleted(world: World) -> None:
    job = await world.submit()
    project, file = job["organization_id"], job["training_file"]
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")
    await world.tick(2)
    request = {"model": MODEL, "training_file": file}
    async with world.engine.begin() as conn:  # as a submission does until it commits
        await conn.execute(text("select from files where id = :id for share"), {"id": file})
        deleting = asyncio.create_task(
            files.delete(world.engine, world.store, project, file, world.clock())
        )
        created = await send_job(world, request)
        assert not deleting.done()

    assert created.status_code == 200
    with pytest.raises(FileInUse):
        await deleting


async def test_a_job_does_not_take_a_file_that_is_just_being_deleted(world: World) -> None:
    file = await world.upload()
    project = (await world.submit())["organization_id"]

    async def blocked() -> int:
        async with world.engine.connect() as observer:
            query = text("select count(*) from pg_locks where not granted")
            return int((await observer.execute(query)).scalar_one())

    async with world.engine.begin() as conn:  # as a deletion does until it commits
        await file_rows.lock(conn, project, file)
        submission = asyncio.create_task(send_job(world, {"model": MODEL, "training_file": file}))
        await until(blocked, bool, interval=0.01)
        await file_rows.mark_deleted(conn, file, world.clock())

    response = await submission

    assert (response.status_code, response.json()["error"]["code"]) == (400, "file_not_found")
    assert "deleted a moment ago" in response.json()["error"]["message"]


async def test_requests_that_are_alike_do_not_wait_for_each_other(world: World) -> None:
    """Each is sent for the first time: none can be a repeat of another."""
    request = await body(world)
    content = json.dumps(request).encode()
    async with world.engine.begin() as conn:
        project = (await conn.execute(text("select id from projects"))).scalar_one()
        lock_name = f"submit:{project}:{hashlib.sha256(content).hexdigest()}"
        await job_rows.acquire_lock(conn, lock_name, shared=True)
        async with asyncio.timeout(60):
            response = await world.call(
                "POST", JOBS, content=content, headers={"content-type": "application/json"}
            )

    assert response.status_code == 200
