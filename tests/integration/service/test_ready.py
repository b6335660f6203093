"""/readyz tells the truth; and a PostgreSQL that is there and read-only now."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service import console
from service.api.app import make_app, make_probes
from service.api.deps import Parts
from service.db.core.engine import make_engine
from service.db.core.schema_version import KnownMigrations
from service.operations.core.liveness import GRACE, LoopLiveness
from service.reconciler.loop import Loop
from tests.nodes.scripted_node import start_training
from tests.world import World, client
from trainer.contract import NodePhase

BEFORE, NOW, LATER = "0004", "0005", "0006"


async def request_path(parts: Parts) -> httpx.Response:
    async with client(make_app(parts)) as http:
        return await http.get("/readyz")


@pytest.mark.parametrize(
    ("newest", "known_versions", "status"),
    [
        (None, {BEFORE}, 200),  # what the database has is what is needed
        (LATER, {BEFORE, None, LATER}, 503),  # nobody has migrated yet
        (BEFORE, {BEFORE}, 200),  # a later release has: its schema is ours and more
    ],
)
async def test_a_process_is_ready_once_its_schema_is_there(
    world: World, newest: str | None, known_versions: set[str | None], status: int
) -> None:
    async with world.engine.connect() as conn:
        schema_version = (
            await conn.execute(text("select version_num from alembic_version"))
        ).scalar_one()
    schema = KnownMigrations(
        newest=newest or schema_version,
        known=frozenset(k or schema_version for k in known_versions),
    )

    response = await request_path(replace(world.parts, schema=schema))

    assert response.status_code == status
    assert ("migrate" in response.text) == (status == 503)


async def test_a_process_whose_database_was_never_migrated_says_what_to_run(
    world: World, database_url: str
) -> None:
    engine = make_engine(database_url.replace("/rekindle?", "/postgres?"))
    schema = KnownMigrations(newest=NOW, known=frozenset({NOW}))

    response = await request_path(replace(world.parts, engine=engine, schema=schema))
    await engine.dispose()

    assert response.status_code == 503
    assert "python -m service.main migrate" in response.json()["status"]


async def test_a_reconciler_that_was_given_a_port_answers_whether_it_is_well_and_nothing_else(
    world: World,
) -> None:
    async with client(make_probes(world.parts)) as http:
        responses = [await http.get(path) for path in ("/livez", "/readyz", "/v1/models", "/docs")]

    assert [response.status_code for response in responses] == [200, 200, 404, 404]
    assert console.parse_arguments("", ["reconciler"]).port is None
    assert console.parse_arguments("", ["reconciler", "--port", "8081"]).port == 8081


async def test_a_process_whose_loop_hangs_is_not_ready(world: World) -> None:
    liveness = LoopLiveness(world.clock)
    liveness.record_turn("attempts")
    parts = replace(world.parts, liveness=liveness)
    healthy = await request_path(parts)
    world.clock.advance(seconds=(GRACE + timedelta(seconds=1)).total_seconds())
    liveness.record_turn("jobs")

    hanging = await request_path(parts)

    assert healthy.status_code == 200
    assert hanging.status_code == 503
    assert "attempts" in hanging.json()["status"]
    assert "jobs" not in hanging.json()["status"]


async def test_a_loop_is_late_by_its_own_time(world: World) -> None:
    liveness, hour = LoopLiveness(world.clock), timedelta(hours=1)
    liveness.record_turn("watch", within=timedelta(seconds=10))
    liveness.record_turn("pruning", within=hour)
    world.clock.advance(seconds=(GRACE + timedelta(seconds=11)).total_seconds())
    first = liveness.late_loops()
    world.clock.advance(seconds=hour.total_seconds())

    assert first == ["watch"]
    assert liveness.late_loops() == ["pruning", "watch"]


@pytest.mark.parametrize(
    ("seconds_ahead", "message"), [(0, "ok"), (4, "ok"), (9, "9 s ahead of"), (-9, "9 s behind")]
)
async def test_a_process_whose_clock_is_not_that_of_postgresql_is_not_ready(
    world: World, seconds_ahead: float, message: str
) -> None:
    ahead_of_it = replace(world.parts, wall_clock=lambda: time.time() + seconds_ahead)
    async with client(make_app(ahead_of_it)) as http:
        response = await http.get("/readyz")

    assert response.status_code == (200 if message == "ok" else 503)
    assert message in response.json()["status"]
    assert ("NTP" in response.json()["status"]) == (message != "ok")


async def test_a_reconciler_without_a_database_is_not_ready(world: World) -> None:
    nowhere = make_engine("postgresql://nobody@127.0.0.1:1/nothing")
    for make in (make_app, make_probes):
        async with client(make(replace(world.parts, engine=nowhere))) as http:
            assert (await http.get("/readyz")).status_code == 503
    await nowhere.dispose()


READ_ONLY = "&options=-c%20default_transaction_read_only%3Don"


@pytest.fixture
async def full(database_url: str) -> AsyncIterator[AsyncEngine]:
    """As Azure makes a server whose disk is all but full."""
    read_only_engine = make_engine(database_url + READ_ONLY)
    yield read_only_engine
    await read_only_engine.dispose()


@pytest.fixture
async def stuck(world: World, full: AsyncEngine) -> AsyncIterator[World]:
    """Yield the world through an api whose database is read-only."""
    async with client(make_app(replace(world.parts, engine=full))) as http:
        yield replace(world, http=http)


@pytest.mark.parametrize("path_suffix", ["", "/{job}/pause"])
async def test_what_a_read_only_database_cannot_keep_is_to_be_sent_again(
    world: World, stuck: World, path_suffix: str
) -> None:
    job = await world.submit()
    body = {"model": "rekindle/tiny-llama", "training_file": await world.upload()}

    path = f"/v1/fine_tuning/jobs{path_suffix.format(job=job['id'])}"
    response = await stuck.call("POST", path, json=body if not path_suffix else None)

    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert response.json()["error"]["code"] == "service_unavailable"
    assert "read-only now" in response.json()["error"]["message"]
    assert (await world.job(job["id"]))["status"] == job["status"]


async def test_a_node_hears_of_a_read_only_database_as_of_an_outage(
    world: World, stuck: World
) -> None:
    _, nodes, number = await start_training(world)

    nodes[0].world = stuck
    response = await nodes[0].say(NodePhase.RUNNING, number, step=2)

    assert response.status_code == 503


async def test_what_is_only_read_is_answered_all_the_same(world: World, stuck: World) -> None:
    job = await world.submit()

    assert (await stuck.job(job["id"]))["id"] == job["id"]


async def test_a_process_whose_database_takes_no_writes_is_not_ready(
    world: World, full: AsyncEngine
) -> None:
    parts = replace(world.parts, engine=full)
    for face in (make_app(parts), make_probes(parts)):
        async with client(face) as http:
            response = await http.get("/readyz")

        assert response.status_code == 503
        assert "takes no writes" in response.json()["status"]
        assert "docs/runbook.md" in response.json()["status"]


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
    records = [record for record in caplog.records if record.name.startswith("service")]
    return [(record.levelname, record.getMessage()) for record in records]
