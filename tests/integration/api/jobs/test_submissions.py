"""A request to train: made of what was read lately, held to what is so now."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import event, text

from service.db.files import files as file_rows
from tests.world import JOBS, MODEL, World


@contextmanager
def statements(world: World) -> Iterator[list[str]]:
    """Yield the statements that are sent to PostgreSQL inside the block."""
    statements_sent: list[str] = []

    def note(_conn: object, _cursor: object, query: str, *_: object) -> None:
        statements_sent.append(query)

    engine = world.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield statements_sent
    event.remove(engine, "before_cursor_execute", note)


async def send_job(world: World, file: str, **fields: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    body = {"model": MODEL, "training_file": file, "seed": 7} | fields
    return await world.call("POST", JOBS, json=body)


async def test_a_new_job_is_shown_as_it_is_read(world: World) -> None:
    file = await world.upload()
    submitted = await send_job(
        world,
        file,
        validation_file=file,
        metadata={"team": "a"},
        infrastructure={"nodes": 2, "budget": {"amount": 900}},
    )
    detail = await world.call("GET", f"{JOBS}/{submitted.json()['id']}", params={"version": 0})

    assert submitted.status_code == 200
    assert submitted.json() == detail.json()
    assert submitted.json()["version"] == 2


async def test_what_was_read_lately_is_not_read_again_for_another_question(
    listening_world: World,
) -> None:
    file = await listening_world.upload()
    await send_job(listening_world, file)
    with statements(listening_world) as queries:
        response = await send_job(listening_world, file, hyperparameters={"n_epochs": 2})

    assert response.json()["hyperparameters"]["n_epochs"] == 2
    assert not any("mean_tokens" in query for query in queries)


async def test_a_file_that_another_replica_deleted_is_not_taken(listening_world: World) -> None:
    file, second_file = await listening_world.upload(), await listening_world.upload()
    project = (await send_job(listening_world, second_file)).json()["organization_id"]
    refused = {"nodes": 7, "budget": {"amount": 0.01}}
    await send_job(listening_world, file, infrastructure=refused)
    async with listening_world.engine.begin() as conn:
        await file_rows.lock(conn, project, file)
        await file_rows.mark_deleted(conn, file, listening_world.clock())

    response = await send_job(listening_world, file)
    second_response = await send_job(listening_world, second_file, validation_file=file)

    fault = {"code": "file_not_found", "param": "training_file", "type": "invalid_request_error"}
    upload = f"no file {file}. Upload it with POST /v1/files first."
    assert response.status_code == 400
    assert response.json()["error"] == fault | {"message": f"training_file: {upload}"}
    assert second_response.json()["error"]["message"] == f"validation_file: {upload}"


async def test_a_model_that_is_unreadable_since_is_planned_with(listening_world: World) -> None:
    file = await listening_world.upload()
    first = await send_job(listening_world, file)
    for name in await listening_world.store.list_containers("base-"):
        await listening_world.store.delete(name.name, "HEAD")
    second = await send_job(listening_world, file)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["plan"] == second.json()["plan"]


async def test_many_cancels_at_once_are_one_event(world: World) -> None:
    job = await world.submit()
    path = f"{JOBS}/{job['id']}"
    responses = await asyncio.gather(*(world.call("POST", f"{path}/cancel") for _ in range(6)))
    events = (await world.call("GET", f"{path}/events")).json()["data"]

    assert {a.status_code for a in responses} == {200}
    assert {a.json()["status_reason"]["code"] for a in responses} == {"cancelling"}
    assert [e["code"] for e in events].count("job.cancel_requested") == 1


async def test_only_the_project_of_a_job_can_cancel_pause_or_resume_it(world: World) -> None:
    job = await world.submit()
    await world.tick(3)
    other_headers = {"authorization": f"Bearer {await world.other_key()}"}
    before = await hints(world)
    for verb in ("cancel", "pause", "resume"):
        response = await world.http.post(f"{JOBS}/{job['id']}/{verb}", headers=other_headers)
        assert response.status_code == 404

    assert await hints(world) == before
    await world.call("POST", f"{JOBS}/{job['id']}/pause")
    assert await hints(world) == [n + 1 for n in before]  # the job's, its attempt's


async def hints(world: World) -> list[int]:
    async with world.engine.connect() as conn:
        query = "select hints from jobs union all select hints from attempts"
        return list((await conn.execute(text(query))).scalars())
