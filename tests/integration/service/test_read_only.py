"""A PostgreSQL that is there and read-only now: a disk that is full, or a replica."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.api.app import make_app, make_probes
from service.db.core.engine import make_engine
from service.reconciler.loop import Loop
from tests.nodes.scripted_node import start_training
from tests.world import World, client
from trainer.contract import NodePhase

READ_ONLY = "&options=-c%20default_transaction_read_only%3Don"


@pytest.fixture
async def full(database_url: str) -> AsyncIterator[AsyncEngine]:
    """As Azure makes a server whose disk is all but full."""
    made = make_engine(database_url + READ_ONLY)
    yield made
    await made.dispose()


@pytest.fixture
async def stuck(world: World, full: AsyncEngine) -> AsyncIterator[World]:
    """Yield the world through an api whose database is read-only."""
    async with client(make_app(replace(world.parts, engine=full))) as http:
        yield replace(world, http=http)


@pytest.mark.parametrize("wish", ["", "/{job}/pause"])
async def test_what_a_read_only_database_cannot_keep_is_to_be_sent_again(
    world: World, stuck: World, wish: str
) -> None:
    job = await world.submit()
    body = {"model": "rekindle/tiny-llama", "training_file": await world.upload()}

    path = f"/v1/fine_tuning/jobs{wish.format(job=job['id'])}"
    answer = await stuck.call("POST", path, json=body if not wish else None)

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["code"] == "service_unavailable"
    assert "read-only now" in answer.json()["error"]["message"]
    assert (await world.job(job["id"]))["status"] == job["status"]


async def test_a_node_hears_of_a_read_only_database_as_of_an_outage(
    world: World, stuck: World
) -> None:
    _, nodes, number = await start_training(world)

    nodes[0].world = stuck
    answer = await nodes[0].say(NodePhase.RUNNING, number, step=2)

    assert answer.status_code == 503


async def test_what_is_only_read_is_answered_all_the_same(world: World, stuck: World) -> None:
    job = await world.submit()

    assert (await stuck.job(job["id"]))["id"] == job["id"]


async def test_a_process_whose_database_takes_no_writes_is_not_ready(
    world: World, full: AsyncEngine
) -> None:
    parts = replace(world.parts, engine=full)
    for face in (make_app(parts), make_probes(parts)):
        async with client(face) as http:
            answer = await http.get("/readyz")

        assert answer.status_code == 503
        assert "takes no writes" in answer.json()["status"]
        assert "docs/runbook.md" in answer.json()["status"]


async def test_a_loop_takes_a_read_only_database_for_one_that_is_away(
    world: World, full: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    jobs = replace(world.jobs, engine=full)

    async def claim(limit: int) -> list[object]:
        stop.set()
        return list(await jobs.claim(limit))

    await Loop(listener=world.listener, stop=stop).run_on_notice("x", 1.0, "jobs", lambda: claim(1))

    assert _told(caplog) == [("WARNING", "loop.database_failed")]


async def test_a_wrong_statement_is_an_internal_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()

    async def bug() -> None:
        stop.set()
        async with world.engine.connect() as conn:
            await conn.execute(text("select no_such_column from jobs"))

    await Loop(listener=world.listener, stop=stop).run_on_notice("x", 1.0, "queue", bug)

    assert _told(caplog) == [("ERROR", "loop.failed")]
    assert "no_such_column" in str(caplog.records[-1].exc_info)


def _told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    ours = [record for record in caplog.records if record.name.startswith("service")]
    return [(record.levelname, record.getMessage()) for record in ours]
