import asyncio
from dataclasses import replace
from typing import Any

import pytest

from service.api.http.rate_limits import ConcurrencyLimits, RateLimits, WorkKind
from service.domain.errors import RateLimited
from service.operations.projects import keys
from tests.world import World


async def test_a_key_beyond_its_rate_limit_gets_429_with_retry_after(world: World) -> None:
    async with world.beside(rates=RateLimits(1)) as small:
        first = await small.call("GET", "/v1/files")
        second = await small.call("GET", "/v1/files")

    assert (first.status_code, second.status_code) == (200, 429)
    told = {name: first.headers[name] for name in first.headers if "ratelimit" in name}
    assert told.pop("ratelimit").startswith('"requests";r=0;t=')
    assert told.pop("x-ratelimit-reset-requests").endswith("s")
    assert told == {
        "ratelimit-policy": '"requests";q=1;w=60',
        "x-ratelimit-limit-requests": "1",
        "x-ratelimit-remaining-requests": "0",
    }
    assert 0 < int(second.headers["retry-after"]) <= 60
    assert second.headers["x-should-retry"] == "true"
    error = second.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_each_request_of_a_key_is_counted_once_and_no_other(world: World) -> None:
    async with world.beside(rates=RateLimits(1)) as small:
        for _ in range(3):
            stranger = await replace(small, key="rk-of-nobody").call("GET", "/v1/files")
            assert stranger.status_code == 401
            assert "ratelimit" not in stranger.headers
            assert (await small.http.get("/livez")).status_code == 200
        answers = [await small.call("POST", "/v1/api_keys", json={"name": "once"})]  # has a body
        other = replace(small, key=await world.other_key("tests"))
        answers.append(await other.call("GET", "/v1/files"))

    assert [answer.status_code for answer in answers] == [200, 200]


async def test_more_requests_than_pooled_connections_are_served(world: World) -> None:
    job = await world.submit()

    async with asyncio.timeout(25):  # the pool would give up after 30 s
        shown = await asyncio.gather(*(world.job(job["id"]) for _ in range(60)))

    assert {s["id"] for s in shown} == {job["id"]}


async def test_a_project_has_so_many_uploads_polls_and_large_bodies_at_once(world: World) -> None:
    job = await world.submit()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    large = {"model": "m", "training_file": "f", "metadata": {"k": "x" * 100_000}}
    form: dict[str, Any] = {"files": {"file": ("a", b"{}")}, "data": {"purpose": "fine-tune"}}
    asked: dict[WorkKind, list[tuple[str, str, dict[str, Any]]]] = {
        WorkKind.POLL: [
            ("GET", f"{path}/stream", {}),
            ("GET", f"{path}/events/stream", {}),
            ("GET", f"{path}?wait=60&version={job['version']}", {}),
        ],
        WorkKind.UPLOAD: [
            ("POST", "/v1/files", form),
            ("POST", "/v1/uploads/upload-1/complete", {"json": {"part_ids": ["part-1"]}}),
        ],
        WorkKind.PART: [("POST", "/v1/uploads/upload-1/parts", {"files": {"data": ("a", b"{}")}})],
        WorkKind.LONG_BODY: [("POST", "/v1/fine_tuning/jobs", {"json": large})],
    }
    async with world.engine.connect() as conn:
        project = await keys.find_project_id(conn, "tests")
    async with world.beside(concurrency=ConcurrencyLimits(dict.fromkeys(WorkKind, 1))) as small:
        for kind, requests in asked.items():
            for method, url, more in requests:
                with small.parts.concurrency.slot(kind, project):
                    refused = await small.call(method, url, **more)

                assert (refused.status_code, refused.headers.get("retry-after")) == (429, "5"), url
                assert kind.value in refused.json()["error"]["message"]


async def test_what_has_ended_gives_its_place_back(world: World) -> None:
    job = await world.submit()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    assert (await world.call("POST", f"{path}/cancel")).status_code == 200
    await world.tick(3)
    async with world.beside(concurrency=ConcurrencyLimits(dict.fromkeys(WorkKind, 1))) as small:
        for _ in range(2):
            assert (await small.call("GET", f"{path}/stream")).text.rstrip().endswith("[DONE]")
            assert await small.upload()


def test_projects_do_not_take_each_others_places() -> None:
    concurrency = ConcurrencyLimits({WorkKind.POLL: 1})
    with concurrency.slot(WorkKind.POLL, "alpha"):
        with concurrency.slot(WorkKind.POLL, "beta"), concurrency.slot(WorkKind.UPLOAD, "alpha"):
            pass
        with pytest.raises(RateLimited), concurrency.slot(WorkKind.POLL, "alpha"):
            pass
    with concurrency.slot(WorkKind.POLL, "alpha"):
        pass
