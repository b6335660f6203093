"""Server-sent events of a job, its events and logs, and the live list of jobs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI, AsyncStream
from sqlalchemy import event

from service.api.app import make_app
from tests import waiting
from tests.nodes.scripted_node import boot, metrics, train
from tests.served import served
from tests.world import JOBS, World
from tests.world import client as connected
from trainer.contract import NodePhase, log_path


@pytest.fixture
async def over(world: World) -> str:
    """Return a job that was cancelled after its machines came up."""
    job = str((await world.submit())["id"])
    await boot(world, job)
    (attempt,) = await world.attempts_of(job)
    await world.store.write(job, log_path(attempt["id"], 0), "Größe\n".encode() * 3)
    await world.call("POST", f"{JOBS}/{job}/cancel")
    await world.tick(12)
    assert (await world.job(job))["status"] == "cancelled"
    return job


def parsed(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the data of the stream's events; the last one is no JSON and says that it is done."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_events_are_streamed_from_any_to_the_end(world: World, over: str) -> None:
    path = f"{JOBS}/{over}/events/stream"
    messages = parsed(await world.call("GET", path))
    events = (await world.call("GET", f"{JOBS}/{over}/events?limit=100")).json()["data"]
    headers = {"last-event-id": messages[2]["data"]["id"]}
    resumed = parsed(await world.call("GET", path, headers=headers))
    invalid = await world.call("GET", path, headers={"last-event-id": "ftevent-1"})

    assert [message["data"]["id"] for message in messages] == [
        event["id"] for event in reversed(events)
    ]
    assert resumed == messages[3:]
    assert invalid.json()["error"]["code"] == "unknown_cursor"


async def test_a_job_is_sent_as_it_is_and_then_done(world: World, over: str) -> None:
    (message,) = parsed(await world.call("GET", f"{JOBS}/{over}/stream"))

    assert message == {"type": "job", "data": await world.job(over)}


async def test_a_log_is_sent_in_whole_characters(world: World, over: str) -> None:
    path = f"{JOBS}/{over}/logs/stream"
    messages = parsed(await world.call("GET", path))
    resumed = parsed(await world.call("GET", path, headers={"last-event-id": "8"}))

    assert "".join(event["data"]["text"] for event in messages) == "Größe\n" * 3
    assert "".join(event["data"]["text"] for event in resumed) == "Größe\n" * 2


@pytest.mark.parametrize("path", ["stream", "events/stream", "logs/stream"])
async def test_a_stream_ends_so_that_the_key_is_checked_again(world: World, path: str) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    short_lived = replace(world.parts, stream_lifetime=timedelta(milliseconds=300))
    (key,) = (await world.call("GET", "/v1/api_keys")).json()["data"]
    head = {"authorization": f"Bearer {world.key}"}
    async with connected(make_app(short_lived)) as http:
        first = await http.get(f"{JOBS}/{job}/{path}", headers=head)
        await http.delete(f"/v1/api_keys/{key['id']}", headers=head)
        resumed = await http.get(f"{JOBS}/{job}/{path}", headers=head)

    assert first.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in first.text, "a client takes that for the end of the job"
    assert resumed.json()["error"]["code"] == "invalid_api_key"


@pytest.fixture
async def client(world: World) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of a served world."""
    async with (
        served(make_app(world.parts)) as url,
        AsyncOpenAI(api_key=world.key, base_url=f"{url}/v1") as sdk_client,
    ):
        yield sdk_client


async def test_openais_client_reads_a_changing_stream(world: World, client: AsyncOpenAI) -> None:
    job = str((await world.submit())["id"])
    stream: AsyncStream[object] = await client.get(
        f"/fine_tuning/jobs/{job}/stream",
        cast_to=object,
        stream=True,
        stream_cls=openai.AsyncStream[object],
    )
    phases = []
    async for message in stream:
        phases.append(message["data"]["phase"])  # type: ignore[index]  # JSON
        if len(phases) == 1:
            await client.fine_tuning.jobs.cancel(job)
            await world.tick(3)

    assert len(phases) > 1
    assert (await world.job(job))["phase"] == phases[-1]


Json = dict[str, Any]
Stream = AsyncIterator[tuple[str, Json]]


@pytest.fixture
def app(listening_world: World) -> FastAPI:
    """Answers from changes that are at most a hundredth of a second apart."""
    return make_app(replace(listening_world.parts, live_interval=timedelta(milliseconds=10)))


@pytest.fixture
async def url(app: FastAPI) -> AsyncIterator[str]:
    """Where it is served."""
    async with served(app) as base_url:
        yield base_url


@asynccontextmanager
async def open_stream(
    url: str, key: str, path: str = f"{JOBS}/stream", **headers: str
) -> AsyncIterator[Stream]:
    """Id and data of each event of a stream, without pings."""
    head = {"authorization": f"Bearer {key}"} | headers
    async with (
        httpx.AsyncClient(base_url=url, timeout=30) as client,
        client.stream("GET", path, headers=head) as response,
    ):
        assert response.status_code == 200
        yield _events(response)


async def _events(response: httpx.Response) -> Stream:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            name = line.removeprefix("id: ")
        if line.startswith("data: {") and name:
            yield name, json.loads(line.removeprefix("data: "))
            name = ""


async def change_metadata(world: World, job: str, note: str) -> int:
    """Change the job's metadata; its version afterwards."""
    response = await world.call("PATCH", f"{JOBS}/{job}", json={"metadata": {"note": note}})
    assert response.status_code == 200, response.text
    return int(response.json()["version"])


async def until_version(stream: Stream, version: int) -> Json:
    async for _, message in stream:
        if message["data"].get("version", 0) >= version:
            data: Json = message["data"]
            return data
    raise AssertionError("the stream has ended")


async def test_every_page_of_a_project_is_sent_a_job_that_changed(
    listening_world: World, url: str
) -> None:
    job = str((await listening_world.submit())["id"])
    async with (
        open_stream(url, listening_world.key) as first_stream,
        open_stream(url, listening_world.key) as second_stream,
    ):
        first = [(await anext(first_stream))[1], (await anext(second_stream))[1]]
        version = await change_metadata(listening_world, job, "new")
        views = [
            await until_version(first_stream, version),
            await until_version(second_stream, version),
        ]

    jobs = (await listening_world.call("GET", JOBS)).json()["data"]
    assert [message["type"] for message in first] == ["ready", "ready"]
    assert first[0]["data"]["resumed"] is False
    assert views[0] == views[1] == jobs[0]


async def test_a_heartbeat_with_steps_reaches_the_page(listening_world: World, url: str) -> None:
    job = str((await listening_world.submit())["id"])
    nodes = await boot(listening_world, job)
    number = await train(listening_world, nodes, step=1)
    async with open_stream(url, listening_world.key) as stream:
        await anext(stream)
        await nodes[0].say(NodePhase.RUNNING, number, step=9, metrics=(metrics(9),))
        async for _, message in stream:
            if message["data"]["progress"]["step"] == 9:
                break

    assert (await listening_world.job(job))["progress"]["step"] == 9


async def test_nothing_of_another_project_is_sent(listening_world: World, url: str) -> None:
    own_job = str((await listening_world.submit())["id"])
    async with (
        open_stream(url, await listening_world.other_key()) as other_stream,
        open_stream(url, listening_world.key) as own_stream,
    ):
        await anext(other_stream)
        await anext(own_stream)
        await until_version(own_stream, await change_metadata(listening_world, own_job, "secret"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(other_stream), 0.2)


async def test_a_stream_resumes_after_its_last_event(listening_world: World, url: str) -> None:
    job = str((await listening_world.submit())["id"])
    async with open_stream(url, listening_world.key) as stream:
        name, _ = await anext(stream)
    version = await change_metadata(listening_world, job, "missed")

    async with open_stream(url, listening_world.key, **{"last-event-id": name}) as stream:
        ready = (await anext(stream))[1]
        view = await until_version(stream, version)

    assert ready["data"]["resumed"] is True
    assert view["metadata"] == {"note": "missed"}


async def test_changes_whose_notice_was_lost_are_found(listening_world: World, url: str) -> None:
    job = str((await listening_world.submit())["id"])
    async with open_stream(url, listening_world.key) as stream:
        await anext(stream)
        listening_world.listener.is_connected = False
        version = await change_metadata(listening_world, job, "quiet")
        view = await until_version(stream, version)

    assert view["metadata"] == {"note": "quiet"}


async def test_streams_end_with_the_process(listening_world: World, app: FastAPI, url: str) -> None:
    lists = app.state.live_lists

    async def reads() -> bool:
        return lists._reader is not None

    async with open_stream(url, listening_world.key) as stream:
        await anext(stream)
        assert await reads()
    await waiting.until(reads, lambda readers: not readers, interval=0.01)
    async with open_stream(url, listening_world.key) as stream:
        await anext(stream)
        app.state.parts.drain.begin_drain()
        assert [message async for message in stream] == []


async def test_streams_of_one_job_read_it_once_for_all(listening_world: World, url: str) -> None:
    job = str((await listening_world.submit())["id"])
    statements: list[str] = []

    def note(*arguments: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        statements.append(arguments[2])

    path = f"{JOBS}/{job}/stream"
    async with AsyncExitStack() as stack:
        pages = [
            await stack.enter_async_context(open_stream(url, listening_world.key, path))
            for _ in range(5)
        ]
        for page in pages:
            await anext(page)
        event.listen(listening_world.engine.sync_engine, "before_cursor_execute", note)
        version = await change_metadata(listening_world, job, "new")
        views = [await until_version(page, version) for page in pages]
        event.remove(listening_world.engine.sync_engine, "before_cursor_execute", note)

    assert all(view == views[0] for view in views)
    assert sum("left join lateral" in statement for statement in statements) <= 3
