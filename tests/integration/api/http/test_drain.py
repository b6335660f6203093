"""SIGTERM to an api process: long polls end at once, what takes too long is told so, no alerts."""

import asyncio
import json
import logging
import re
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bench import ports
from service.api.http.drain import Drain, DrainMiddleware
from service.api.http.server import DrainingServer
from service.db.core.notify import Listener
from tests import waiting
from tests.azurite import KEY
from tests.clock import Clock
from tests.integration.db.rows import blocked
from tests.nodes.scripted_node import ScriptedNode, boot
from tests.served import running
from tests.world import SECRET, World
from trainer.contract import Directive, DirectiveKind

ROOT = Path(__file__).resolve().parents[4]
SETTINGS = {
    "REKINDLE_STORAGE": f"DefaultEndpointsProtocol=http;AccountName=nobody;AccountKey={KEY};"
    "BlobEndpoint=http://127.0.0.1:1/nobody;",
    "REKINDLE_PUBLIC_URL": "http://service",
    "REKINDLE_SECRET_KEY": SECRET,
    "REKINDLE_DEPLOYMENT": "test",
    "REKINDLE_CLOUD": "fake",
    "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus",
}
TIMEOUT = 60.0  # seconds, for a process on a machine that is busy
AT_ONCE = 18.0  # less than a poll of 20 s; one that is broken off is answered 503


@dataclass
class Face:
    """A process of the api, and its log."""

    process: Process
    lines: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def read(self) -> None:
        """Take in its log until it has ended."""
        assert self.process.stderr
        async for line in self.process.stderr:
            assert line.startswith(b"{"), line + await self.process.stderr.read()
            record = json.loads(line)
            self.lines.append(record)
            if at := re.search(r"running on (http://\S+)", record["event"]):
                self.url = at[1]

    async def end(self) -> int:
        """Its exit status, once it has obeyed the SIGTERM that it gets now."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), TIMEOUT)

    def lines_at(self, level: str) -> list[dict[str, Any]]:
        """Its lines of this level."""
        return [line for line in self.lines if line["level"] == level]


@asynccontextmanager
async def face(database_url: str, **settings: str) -> AsyncIterator[Face]:
    """Yield the api, ready for requests."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.main", "api", "--port", "0"),
        cwd=ROOT,
        env=SETTINGS | {"REKINDLE_DATABASE_URL": database_url} | settings,
        stderr=PIPE,
    )
    replica = Face(process)
    reading = asyncio.create_task(replica.read())

    async def where() -> str:
        assert process.returncode is None, replica.lines
        return replica.url

    try:
        await waiting.until(where, bool, deadline=TIMEOUT)
        yield replica
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


class Asked:
    """A request that is on its way and has no answer yet."""

    def __init__(self, http: httpx.AsyncClient, method: str, path: str, token: str) -> None:
        self._sent = asyncio.Event()
        self.answer = asyncio.create_task(
            http.request(
                method,
                path,
                headers={"authorization": f"Bearer {token}"},
                extensions={"trace": self._trace},
                timeout=TIMEOUT,
            )
        )

    async def _trace(self, event: str, _: Mapping[str, Any]) -> None:
        if event == "http11.receive_response_headers.started":
            self._sent.set()

    async def sent(self) -> None:
        """Return once the process has it to read."""
        await asyncio.wait_for(self._sent.wait(), TIMEOUT)


@pytest.fixture
def clock() -> Clock:
    """Set the clock to real time, by which the node's grants must be valid."""
    return Clock(datetime.fromtimestamp(time.time(), UTC))


async def waiting_node(world: World) -> tuple[ScriptedNode, str]:
    """One that has heard all there is, and its job."""
    job = await world.submit()
    (node, *_) = await boot(world, job["id"])
    return node, job["id"]


async def test_long_polls_are_answered_at_once_by_a_drain(world: World, database_url: str) -> None:
    node, job_id = await waiting_node(world)
    job = await world.job(job_id)
    seat, path = node.seat, f"/v1/fine_tuning/jobs/{job_id}"
    assert seat is not None
    directive = f"/internal/nodes/{seat.node_id}/directive?after=0&wait=20&epoch={seat.epoch}"
    poll_path = f"{path}?wait=60&version={job['version']}"

    async with face(database_url) as api, httpx.AsyncClient(base_url=api.url) as http:
        polls = [
            Asked(http, "GET", directive, seat.node_token),
            Asked(http, "GET", poll_path, world.key),
            Asked(http, "GET", poll_path, world.key),
        ]
        for poll in polls:
            await poll.sent()
        later_poll = Asked(http, "GET", path, world.key)
        assert (await later_poll.answer).status_code == 200
        start = time.monotonic()
        status = await api.end()
        elapsed = time.monotonic() - start
        responses = [await poll.answer for poll in polls]

    assert [a.status_code for a in responses] == [200, 200, 200]
    drain_directive = Directive.from_json(responses[0].content)
    assert (drain_directive.kind, drain_directive.seq) == (DirectiveKind.CARRY_ON, 0)
    assert [a.json()["id"] for a in responses[1:]] == [job_id, job_id]
    assert all(a.headers["connection"] == "close" for a in responses), "the next is another's"
    assert (status, elapsed < AT_ONCE) == (0, True), elapsed
    assert api.lines_at("error") == api.lines_at("warning") == []


@asynccontextmanager
async def lock_job(world: World, job_id: str) -> AsyncIterator[None]:
    """Who would change this job waits."""
    async with world.engine.begin() as conn:
        await conn.execute(text("select from jobs where id = :id for update"), {"id": job_id})
        yield


async def test_requests_that_outlast_the_drain_are_retryable(
    world: World, database_url: str
) -> None:
    job_id = (await world.submit())["id"]
    cancel = f"/v1/fine_tuning/jobs/{job_id}/cancel"
    drain = {"REKINDLE_DRAIN_SECONDS": "1"}

    async with (
        face(database_url, **drain) as api,
        httpx.AsyncClient(base_url=api.url) as http,
        lock_job(world, job_id),
    ):
        cancelling = Asked(http, "POST", cancel, world.key)
        await waiting.until(lambda: blocked(world.engine), bool)
        status = await api.end()
        response = await cancelling.answer

    assert (response.status_code, status) == (503, 0)
    assert response.json()["error"]["code"] == "service_unavailable"
    assert response.headers["retry-after"] == "5"
    assert response.headers["x-request-id"].startswith("req-")
    assert api.lines_at("error") == []
    (line,) = api.lines_at("warning")
    assert (line["event"], line["unanswered"], line["half_answered"]) == ("api.cut_off", 1, 0)
    assert (await world.job(job_id))["status"] != "cancelled"


@asynccontextmanager
async def served(app: ASGIApp, drain: Drain, seconds: float) -> AsyncIterator[str]:
    """Such an app by the service's own server, in this process; told to stop at the end."""
    port = ports.free()
    server = DrainingServer(app, drain, host="127.0.0.1", port=port, drain_seconds=seconds)
    async with running(server):
        yield f"http://127.0.0.1:{port}"


async def test_a_download_that_outlasts_the_drain_breaks_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)  # as for the next block from Blob
            yield bytes(2**20)

    async def download(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(endless())(scope, receive, send)

    drain = Drain(Listener("postgresql://nowhere"))
    async with httpx.AsyncClient(timeout=TIMEOUT) as http:
        async with served(DrainMiddleware(download, drain), drain, seconds=0.2) as url:
            response = await http.send(http.build_request("GET", url), stream=True)

        with pytest.raises(httpx.TransportError):
            await response.aread()

    assert response.status_code == 200
    alerts = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [(r.getMessage(), r.__dict__["half_answered"]) for r in alerts] == [("api.cut_off", 1)]


async def test_a_request_cancelled_for_another_reason_is_not_answered() -> None:
    started_event, drain = asyncio.Event(), Drain(Listener("postgresql://nowhere"))

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        started_event.set()
        await asyncio.Event().wait()

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(DrainMiddleware(hang, drain))
    ) as http:
        request = asyncio.create_task(http.get("http://service"))
        await started_event.wait()
        request.cancel()

        with pytest.raises(asyncio.CancelledError):
            await request


async def test_a_long_poll_that_comes_when_the_drain_has_begun_does_not_wait(world: World) -> None:
    node, job_id = await waiting_node(world)
    version = (await world.job(job_id))["version"]
    assert node.seat is not None
    world.parts.drain.begin_drain()
    start = time.monotonic()

    directive = await node.hear()
    job = await world.call("GET", f"/v1/fine_tuning/jobs/{job_id}?wait=60&version={version}")

    assert time.monotonic() - start < AT_ONCE
    assert (directive.kind, job.status_code) == (DirectiveKind.CARRY_ON, 200)
