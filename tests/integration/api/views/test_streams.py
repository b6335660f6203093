"""Server-sent events of a job, its events and its logs, read by OpenAI's client too."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, AsyncStream

from service.api.app import make_app
from tests.nodes.scripted_node import boot
from tests.served import served
from tests.world import World
from tests.world import client as connected
from trainer.contract import log_path

JOBS = "/v1/fine_tuning/jobs"


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


def parsed(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the data of the stream's events; the last one is no JSON and says that it is done."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_events_come_oldest_first_and_end_with_the_job(world: World, over: str) -> None:
    answer = await world.call("GET", f"{JOBS}/{over}/events/stream")
    streamed = [event["data"]["id"] for event in parsed(answer)]
    listed = (await world.call("GET", f"{JOBS}/{over}/events?limit=100")).json()["data"]

    assert streamed == [event["id"] for event in reversed(listed)]


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(world: World, over: str) -> None:
    path = f"{JOBS}/{over}/events/stream"
    whole = parsed(await world.call("GET", path))
    seen = {"last-event-id": whole[2]["data"]["id"]}
    rest = parsed(await world.call("GET", path, headers=seen))
    wrong = await world.call("GET", path, headers={"last-event-id": "ftevent-1"})

    assert rest == whole[3:]
    assert wrong.json()["error"]["code"] == "unknown_cursor"


async def test_a_job_is_sent_as_it_is_and_then_done(world: World, over: str) -> None:
    (sent,) = parsed(await world.call("GET", f"{JOBS}/{over}/stream"))

    assert sent == {"type": "job", "data": await world.job(over)}


async def test_a_log_is_sent_in_whole_characters(world: World, over: str) -> None:
    path = f"{JOBS}/{over}/logs/stream"
    whole = parsed(await world.call("GET", path))
    rest = parsed(await world.call("GET", path, headers={"last-event-id": "8"}))

    assert "".join(event["data"]["text"] for event in whole) == "Größe\n" * 3
    assert "".join(event["data"]["text"] for event in rest) == "Größe\n" * 2


@pytest.mark.parametrize("path", ["stream", "events/stream", "logs/stream"])
async def test_a_stream_ends_in_its_middle_so_that_the_key_is_looked_at_again(
    world: World, path: str
) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    short = replace(world.parts, stream_lifetime=timedelta(milliseconds=300))
    (key,) = (await world.call("GET", "/v1/api_keys")).json()["data"]
    head = {"authorization": f"Bearer {world.key}"}
    async with connected(make_app(short)) as http:
        cut = await http.get(f"{JOBS}/{job}/{path}", headers=head)
        await http.delete(f"/v1/api_keys/{key['id']}", headers=head)
        again = await http.get(f"{JOBS}/{job}/{path}", headers=head)

    assert cut.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in cut.text, "a client takes that for the end of the job"
    assert again.json()["error"]["code"] == "invalid_api_key"


@pytest.fixture
async def client(world: World) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of a served world."""
    async with (
        served(make_app(world.parts)) as url,
        AsyncOpenAI(api_key=world.key, base_url=f"{url}/v1") as made,
    ):
        yield made


async def test_openais_client_reads_a_stream_while_the_job_changes(
    world: World, client: AsyncOpenAI
) -> None:
    job = str((await world.submit())["id"])
    stream: AsyncStream[object] = await client.get(
        f"/fine_tuning/jobs/{job}/stream",
        cast_to=object,
        stream=True,
        stream_cls=openai.AsyncStream[object],
    )
    phases = []
    async for sent in stream:
        phases.append(sent["data"]["phase"])  # type: ignore[index]  # JSON
        if len(phases) == 1:
            await client.fine_tuning.jobs.cancel(job)
            await world.tick(3)

    assert len(phases) > 1
    assert (await world.job(job))["phase"] == phases[-1]
