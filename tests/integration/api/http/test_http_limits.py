"""How much is read of a request, and how many there may be."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from bench import ports
from service.api.app import make_routes
from service.api.http.drain import Drain
from service.api.http.protocol import ConnectionLimits
from service.api.http.rate_limits import ConcurrencyLimits, RateLimits, WorkKind
from service.api.http.requests import LONG_BODY, USUAL_BODY
from service.api.http.server import DrainingServer
from service.db.core.notify import Listener
from service.domain.errors import RateLimited
from service.operations.projects import keys
from tests.served import running
from tests.world import World

TIMEOUT = 60.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a look at the body, as to who sends no key."""
    head = {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}
    await send(head)
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected(limits: ConnectionLimits) -> AsyncIterator[Streams]:
    """Yield a connection to the service's own server."""
    drain, port = Drain(Listener("postgresql://nowhere")), ports.free()
    server = DrainingServer(
        refuses, drain, host="127.0.0.1", port=port, drain_seconds=1.0, limits=limits
    )
    async with running(server), asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def test_the_server_cuts_a_connection_on_which_no_head_comes() -> None:
    async with connected(ConnectionLimits(head_seconds=0.1)) as (reader, _):
        assert await reader.read() == b""


async def test_a_refused_head_is_answered_although_its_client_sends_on() -> None:
    async with connected(ConnectionLimits()) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 60_000 + b"\r\n")
        await writer.drain()

        assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        assert b'"headers_too_large"' in await reader.read()


LONG = {
    "completeUpload",
    "createFineTuningJob",
    "createFineTuningPlan",
    "runGrader",
    "validateGrader",
}
OPEN = {"signIn"}  # its short body is what its sender is known by: projects/test_keys.py


def bodies() -> Iterator[tuple[str, str, str, bool]]:
    """Of every operation that takes a body: its name, method and path, and whether it is JSON."""
    for path, operations in make_routes().openapi()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            if body and operation["operationId"] not in OPEN:
                is_json = "application/json" in body["content"]
                url = path.replace("{", "").replace("}", "")
                yield operation["operationId"], method.upper(), url, is_json


BODIES = [(name, method, path) for name, method, path, _ in bodies()]
JSON = [(name, method, path) for name, method, path, is_json in bodies() if is_json]


async def body(size: int, sizes: list[int]) -> AsyncIterator[bytes]:
    """Yield a string in JSON of ``size`` bytes, in chunks; ``sizes``: how much of it was taken."""
    yield b'"'
    for offset in range(1, size - 1, 1024):
        chunk = b"x" * min(1024, size - 1 - offset)
        sizes.append(len(chunk))
        yield chunk
    yield b'"'


async def test_no_byte_of_a_body_is_read_before_the_key_is_known(world: World) -> None:
    for key in ({}, {"authorization": "Bearer rk-of-nobody"}):
        headers = {"content-type": "application/json"} | key
        for name, method, path in BODIES:
            sizes: list[int] = []
            content = body(10_000, sizes)
            response = await world.http.request(method, path, headers=headers, content=content)

            assert (response.status_code, sizes) == (401, []), name


async def test_a_body_in_json_has_64_kib_where_no_more_is_needed(world: World) -> None:
    headers = {"content-type": "application/json"}
    for name, method, path in JSON:
        limit = LONG_BODY if name in LONG else USUAL_BODY
        accepted = await world.call(method, path, headers=headers, content=body(limit, []))
        sizes: list[int] = []
        response = await world.call(method, path, headers=headers, content=body(2 * limit, sizes))

        assert accepted.status_code != 413, name
        assert response.status_code == 413, name
        assert sum(sizes) <= limit + 2048, name


async def test_a_key_beyond_its_rate_limit_gets_429_with_retry_after(world: World) -> None:
    async with world.beside(rates=RateLimits(1)) as limited:
        first = await limited.call("GET", "/v1/files")
        second = await limited.call("GET", "/v1/files")

    assert (first.status_code, second.status_code) == (200, 429)
    rate_headers = {name: first.headers[name] for name in first.headers if "ratelimit" in name}
    assert rate_headers.pop("ratelimit").startswith('"requests";r=0;t=')
    assert rate_headers.pop("x-ratelimit-reset-requests").endswith("s")
    assert rate_headers == {
        "ratelimit-policy": '"requests";q=1;w=60',
        "x-ratelimit-limit-requests": "1",
        "x-ratelimit-remaining-requests": "0",
    }
    assert 0 < int(second.headers["retry-after"]) <= 60
    assert second.headers["x-should-retry"] == "true"
    error = second.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_each_request_of_a_key_is_counted_once_and_no_other(world: World) -> None:
    async with world.beside(rates=RateLimits(1)) as limited:
        for _ in range(3):
            unauthorized = await replace(limited, key="rk-of-nobody").call("GET", "/v1/files")
            assert unauthorized.status_code == 401
            assert "ratelimit" not in unauthorized.headers
            assert (await limited.http.get("/livez")).status_code == 200
        responses = [await limited.call("POST", "/v1/api_keys", json={"name": "once"})]
        other_client = replace(limited, key=await world.other_key("tests"))
        responses.append(await other_client.call("GET", "/v1/files"))

    assert [response.status_code for response in responses] == [200, 200]


async def test_more_requests_than_pooled_connections_are_served(world: World) -> None:
    job = await world.submit()

    async with asyncio.timeout(25):  # the pool would give up after 30 s
        views = await asyncio.gather(*(world.job(job["id"]) for _ in range(60)))

    assert {s["id"] for s in views} == {job["id"]}


async def test_a_project_has_so_many_uploads_polls_and_large_bodies_at_once(world: World) -> None:
    job = await world.submit()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    large_body = {"model": "m", "training_file": "f", "metadata": {"k": "x" * 100_000}}
    form: dict[str, Any] = {"files": {"file": ("a", b"{}")}, "data": {"purpose": "fine-tune"}}
    requests_by_kind: dict[WorkKind, list[tuple[str, str, dict[str, Any]]]] = {
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
        WorkKind.LONG_BODY: [("POST", "/v1/fine_tuning/jobs", {"json": large_body})],
    }
    async with world.engine.connect() as conn:
        project = await keys.find_project_id(conn, "tests")
    async with world.beside(concurrency=ConcurrencyLimits(dict.fromkeys(WorkKind, 1))) as limited:
        for kind, requests in requests_by_kind.items():
            for method, url, options in requests:
                with limited.parts.concurrency.slot(kind, project):
                    response = await limited.call(method, url, **options)

                assert (response.status_code, response.headers.get("retry-after")) == (429, "5"), (
                    url
                )
                assert kind.value in response.json()["error"]["message"]


async def test_what_has_ended_gives_its_place_back(world: World) -> None:
    job = await world.submit()
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    assert (await world.call("POST", f"{path}/cancel")).status_code == 200
    await world.tick(3)
    async with world.beside(concurrency=ConcurrencyLimits(dict.fromkeys(WorkKind, 1))) as limited:
        for _ in range(2):
            assert (await limited.call("GET", f"{path}/stream")).text.rstrip().endswith("[DONE]")
            assert await limited.upload()


def test_projects_do_not_take_each_others_places() -> None:
    concurrency = ConcurrencyLimits({WorkKind.POLL: 1})
    with concurrency.slot(WorkKind.POLL, "alpha"):
        with concurrency.slot(WorkKind.POLL, "beta"), concurrency.slot(WorkKind.UPLOAD, "alpha"):
            pass
        with pytest.raises(RateLimited), concurrency.slot(WorkKind.POLL, "alpha"):
            pass
    with concurrency.slot(WorkKind.POLL, "alpha"):
        pass
