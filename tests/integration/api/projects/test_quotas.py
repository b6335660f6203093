import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx

from service.operations.files.uploads import Staging
from service.operations.projects import quotas
from tests.integration.api.files.upload_parts import begin_upload, send_part
from tests.world import DATASET, JOBS, World


async def set_limits(world: World, **limits: int | None) -> None:
    """Give the project these limits."""
    async with world.engine.begin() as conn:
        await quotas.set_limits(conn, "tests", limits)


async def describe_limits(world: World) -> str:
    """Return what the project has, as the operator sees it."""
    async with world.engine.connect() as conn:
        return await quotas.describe_limits(conn, "tests")


def is_refused(response: httpx.Response, *phrases: str) -> bool:
    """Whether the answer says that the quota is used up, and what to do."""
    error = response.json()["error"]
    is_quota_error = (response.status_code, error["code"]) == (403, "quota_exceeded")
    return is_quota_error and all(
        phrase in error["message"] for phrase in ("or ask the operator", *phrases)
    )


async def test_a_project_has_so_many_jobs_that_are_not_over(world: World) -> None:
    await set_limits(world, live_jobs=2)
    first = await world.submit()
    await world.submit()
    body = await world.job_request()
    refusal = await world.call("POST", JOBS, json=body)
    await world.call("POST", f"{JOBS}/{first['id']}/cancel")
    await world.tick(3)
    after = await world.call("POST", JOBS, json=body)

    assert is_refused(refusal, "2 live jobs", "cancel some")
    assert after.status_code == 200


async def test_requests_at_the_same_time_do_not_share_the_last_place(world: World) -> None:
    await set_limits(world, live_jobs=3, keys=4, files=4)
    request = await world.job_request()
    bodies = [request | {"seed": seed} for seed in range(6)]
    jobs = [world.call("POST", JOBS, json=body) for body in bodies]
    keys = [world.call("POST", "/v1/api_keys", json={"name": f"{n}"}) for n in range(6)]
    form = {"purpose": "fine-tune"}
    files = [
        world.call("POST", "/v1/files", files={"file": ("a", DATASET)}, data=form) for _ in range(6)
    ]
    for requests in (jobs, keys, files):
        responses = await asyncio.gather(*requests)
        assert Counter(a.status_code for a in responses) == {200: 3, 403: 3}


async def test_a_job_that_was_created_already_needs_no_new_place(world: World) -> None:
    await set_limits(world, live_jobs=1)
    headers = {"idempotency-key": "once"}
    body = await world.job_request()
    first = await world.call("POST", JOBS, json=body, headers=headers)
    second = await world.call("POST", JOBS, json=body, headers=headers)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] == second.json()["id"]


async def test_a_project_has_so_many_files_and_uploads(world: World) -> None:
    await set_limits(world, files=2)
    file = await world.upload()
    await begin_upload(world)
    form = {"files": {"file": ("a", DATASET)}, "data": {"purpose": "fine-tune"}}
    refusal = await world.call("POST", "/v1/files", **form)
    await world.call("DELETE", f"/v1/files/{file}")
    await world.upload()

    assert is_refused(refusal, "2 files and uploads", "DELETE /v1/files/ID")


async def test_a_project_has_so_many_bytes_of_files(world: World) -> None:
    await world.upload()
    await set_limits(world, bytes=2 * len(DATASET) + 1000)
    upload = {"filename": "a", "purpose": "fine-tune", "mime_type": "application/jsonl"}
    accepted = await world.call("POST", "/v1/uploads", json=upload | {"bytes": len(DATASET)})
    upload_response = await world.call("POST", "/v1/uploads", json=upload | {"bytes": len(DATASET)})

    assert accepted.status_code == 200
    assert is_refused(upload_response, "bytes of files and uploads")


async def test_an_upload_of_unknown_size_counts_as_the_largest(world: World) -> None:
    await set_limits(world, bytes=world.parts.limits.max_bytes - 1)

    form = httpx.Request("POST", "http://service", files={"file": ("a", DATASET)})
    kind = {"content-type": form.headers["content-type"]}

    async def chunks() -> AsyncIterator[bytes]:
        yield form.read()

    response = await world.call("POST", "/v1/files", content=chunks(), headers=kind)

    assert is_refused(response, "send Content-Length")


async def test_the_quota_of_one_project_is_no_other_projects(world: World) -> None:
    await set_limits(world, keys=0, files=0)
    other_client = replace(world, key=await world.other_key())

    assert (await other_client.call("POST", "/v1/api_keys", json={"name": "x"})).status_code == 200
    assert await other_client.upload()


async def test_parts_that_are_sent_again_and_again_fill_no_storage(world: World) -> None:
    async with world.beside(staging=Staging(spare_bytes=10)) as limited:
        upload = await begin_upload(limited, bytes=100)
        responses = [await send_part(limited, upload, b"x" * 100) for _ in range(2)]
        refusal = await send_part(limited, upload, b"x" * 100)

    assert [response.status_code for response in responses] == [200, 200]
    assert refusal.status_code == 400
    assert "or cancel it" in refusal.json()["error"]["message"]


async def test_the_operator_sees_what_a_project_has_and_may_have(world: World) -> None:
    await world.submit()
    await set_limits(world, live_jobs=7, keys=5)
    before = await describe_limits(world)
    await set_limits(world, live_jobs=None)

    assert before.startswith("It has 1 of 7 live jobs, 1 of 100000 files, ")
    assert before.endswith("1 of 5 API keys.")
    assert "1 of 10000 live jobs" in await describe_limits(world)


async def test_nothing_may_be_added_where_the_limit_is_zero(world: World) -> None:
    request = await world.job_request()
    file = {"files": {"file": ("a", DATASET)}}
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "live_jobs": (JOBS, {"json": request}),
        "files": ("/v1/files", file),
        "bytes": ("/v1/files", file),
        "keys": ("/v1/api_keys", {"json": {"name": "x"}}),
    }
    for name, (path, body) in requests.items():
        await set_limits(world, **{name: 0})
        assert is_refused(await world.call("POST", path, **body)), name
        await set_limits(world, **{name: None})


async def test_a_revoked_key_gives_its_place_back(world: World) -> None:
    await set_limits(world, keys=2)
    second = (await world.call("POST", "/v1/api_keys", json={"name": "second"})).json()
    refusal = await world.call("POST", "/v1/api_keys", json={"name": "third"})
    await world.call("DELETE", f"/v1/api_keys/{second['id']}")

    after = await world.call("POST", "/v1/api_keys", json={"name": "third"})

    assert is_refused(refusal, "2 API keys", "DELETE /v1/api_keys/ID")
    assert after.status_code == 200
