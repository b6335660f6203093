"""rekindle.Client and AsyncClient: OpenAI's clients, and Rekindle's calls beside them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from openai import NotFoundError
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import rekindle
from rekindle.cli.errors import CliError
from service.api.app import make_app
from tests.nodes.scripted_node import boot, start_training
from tests.served import served
from tests.world import DATASET, MODEL, World
from trainer.contract import log_path


@pytest.fixture
async def url(world: World) -> AsyncIterator[str]:
    """Yield a served world."""
    async with served(make_app(world.parts)) as base_url:
        yield base_url


async def test_a_job_is_planned_created_and_waited_for(world: World, url: str) -> None:
    async with rekindle.AsyncClient(api_key=world.key, base_url=url) as client:
        file = await client.files.create(file=("t.jsonl", DATASET), purpose="fine-tune")
        options = {"model": MODEL, "training_file": file.id}
        plan = await client.jobs.plan(**options)
        job = await client.jobs.create(**options, plan=plan.id)
        requests: list[str] = []
        waiter = asyncio.create_task(
            client.jobs.wait(job.id, timeout=120, on_change=lambda j: requests.append(j.phase))
        )
        await world.tick()
        await client.fine_tuning.jobs.cancel(job.id)
        await world.tick(3)
        finished = await waiter

        assert float(plan.chosen.cost_p50) > 0
        assert (finished.status, finished.cost.final) == ("cancelled", True)
        assert requests
        assert (await client.jobs.cost(job.id)).spent == finished.cost.spent


async def test_waiting_outlives_a_service_that_is_away_and_ends_at_a_pause(world: World) -> None:
    """A proxy answers in place of the service, which is being replaced."""
    job = (await world.submit())["id"]
    app, disconnected, lost_notice = make_app(world.parts), asyncio.Event(), asyncio.Event()

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if not disconnected.is_set():
            await app(scope, receive, send)
            return
        lost_notice.set()
        await PlainTextResponse("bad gateway", 502)(scope, receive, send)

    async with (
        served(proxy) as url,
        rekindle.AsyncClient(api_key=world.key, base_url=url, timeout=3) as client,
    ):
        waiter = asyncio.create_task(client.jobs.wait(job, timeout=120))
        stopped = asyncio.create_task(client.jobs.wait(job))
        await asyncio.sleep(0)
        stopped.cancel()
        disconnected.set()
        await asyncio.wait_for(lost_notice.wait(), 20)
        disconnected.clear()
        assert (await client.jobs.pause(job)).id == job
        await world.tick(2)
        paused = await waiter

        assert (paused.status, paused.phase) == ("queued", "paused")
        with pytest.raises(asyncio.CancelledError):
            await stopped
        with pytest.raises(NotFoundError):
            await client.jobs.wait("ftjob-gone")


async def test_a_short_time_out_of_the_client_makes_no_storm_of_requests(world: World) -> None:
    """The service answers five seconds before the client would give up: here at once."""
    job = (await world.submit())["id"]
    async with (
        served(make_app(world.parts)) as url,
        rekindle.AsyncClient(api_key=world.key, base_url=url).with_options(timeout=3) as client,
    ):
        requests: list[object] = []

        async def note(request: object) -> None:
            requests.append(request)

        client._client.event_hooks["request"].append(note)
        with pytest.raises(TimeoutError, match="has not ended yet"):
            await client.jobs.wait(job, timeout=1.5)

    assert len(requests) <= 3


async def test_a_log_is_read_in_pieces_of_whole_characters(world: World, url: str) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    async with rekindle.AsyncClient(api_key=world.key, base_url=url) as client:
        (attempt,) = await client.jobs.attempts(job)
        text = "Größe\n" * 3
        await world.store.write(job, log_path(attempt.id, 0), text.encode())
        log = "".join([chunk async for chunk in client.jobs.logs(job)])

    assert log == text


async def test_a_create_names_an_idempotency_key_by_itself(world: World, url: str) -> None:
    async with rekindle.AsyncClient(api_key=world.key, base_url=url) as client:
        file = await client.files.create(file=("t.jsonl", DATASET), purpose="fine-tune")
        requests: list[str | None] = []

        async def note(request: object) -> None:
            requests.append(request.headers.get("idempotency-key"))  # type: ignore[attr-defined]  # httpx's

        client._client.event_hooks["request"].append(note)
        await client.jobs.create(model=MODEL, training_file=file.id)

    assert requests[0]


async def test_the_synchronous_client_does_the_same(world: World, url: str) -> None:
    job, _, _ = await start_training(world)

    def use() -> tuple[str, int, str]:
        with rekindle.Client(api_key=world.key, base_url=f"{url}/v1/") as client:
            job_view = client.jobs.retrieve(job, timeout=9, extra_headers={"prefer": "wait=0"})
            first_id = client.jobs.list(limit=1).data[0].id
            return job_view.phase, len(client.jobs.attempts(job)), first_id

    phase, attempts, first_id = await asyncio.to_thread(use)

    assert (attempts, first_id) == (1, job)
    assert phase


def test_without_a_service_it_says_so(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REKINDLE_URL", "OPENAI_BASE_URL", "REKINDLE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(CliError, match="No service is specified"):
        rekindle.Client()
