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
    said: list[str] = []

    def note(_conn: object, _cursor: object, query: str, *_: object) -> None:
        said.append(query)

    engine = world.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield said
    event.remove(engine, "before_cursor_execute", note)


async def send_job(world: World, file: str, **more: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    body = {"model": MODEL, "training_file": file, "seed": 7} | more
    return await world.call("POST", JOBS, json=body)


async def test_a_new_job_is_shown_as_it_is_read(world: World) -> None:
    file = await world.upload()
    sent = await send_job(
        world,
        file,
        validation_file=file,
        metadata={"team": "a"},
        infrastructure={"nodes": 2, "budget": {"amount": 900}},
    )
    read = await world.call("GET", f"{JOBS}/{sent.json()['id']}", params={"version": 0})

    assert sent.status_code == 200
    assert sent.json() == read.json()
    assert sent.json()["version"] == 2


async def test_what_was_read_lately_is_not_read_again_for_another_question(heard: World) -> None:
    file = await heard.upload()
    await send_job(heard, file)
    with statements(heard) as said:
        answer = await send_job(heard, file, hyperparameters={"n_epochs": 2})

    assert answer.json()["hyperparameters"]["n_epochs"] == 2
    assert not any("mean_tokens" in query for query in said)


async def test_a_file_that_another_replica_deleted_is_not_taken(heard: World) -> None:
    file, other = await heard.upload(), await heard.upload()
    project = (await send_job(heard, other)).json()["organization_id"]
    await send_job(heard, file, infrastructure={"nodes": 7, "budget": {"amount": 0.01}})  # refused
    async with heard.engine.begin() as conn:
        await file_rows.lock(conn, project, file)
        await file_rows.mark_deleted(conn, file, heard.clock())

    answer = await send_job(heard, file)
    mixed = await send_job(heard, other, validation_file=file)

    fault = {"code": "file_not_found", "param": "training_file", "type": "invalid_request_error"}
    upload = f"no file {file}. Upload it with POST /v1/files first."
    assert answer.status_code == 400
    assert answer.json()["error"] == fault | {"message": f"training_file: {upload}"}
    assert mixed.json()["error"]["message"] == f"validation_file: {upload}"


async def test_a_model_that_is_unreadable_since_is_planned_with(heard: World) -> None:
    file = await heard.upload()
    first = await send_job(heard, file)
    for name in await heard.store.list_containers("base-"):
        await heard.store.delete(name.name, "HEAD")
    again = await send_job(heard, file)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["plan"] == again.json()["plan"]


async def test_many_cancels_at_once_are_one_event(world: World) -> None:
    job = await world.submit()
    path = f"{JOBS}/{job['id']}"
    answers = await asyncio.gather(*(world.call("POST", f"{path}/cancel") for _ in range(6)))
    told = (await world.call("GET", f"{path}/events")).json()["data"]

    assert {a.status_code for a in answers} == {200}
    assert {a.json()["status_reason"]["code"] for a in answers} == {"cancelling"}
    assert [e["code"] for e in told].count("job.cancel_requested") == 1


async def test_only_the_project_of_a_job_can_cancel_pause_or_resume_it(world: World) -> None:
    job = await world.submit()
    await world.tick(3)
    theirs = {"authorization": f"Bearer {await world.other_key()}"}
    before = await hints(world)
    for verb in ("cancel", "pause", "resume"):
        answer = await world.http.post(f"{JOBS}/{job['id']}/{verb}", headers=theirs)
        assert answer.status_code == 404

    assert await hints(world) == before
    await world.call("POST", f"{JOBS}/{job['id']}/pause")
    assert await hints(world) == [n + 1 for n in before]  # the job's, its attempt's


async def hints(world: World) -> list[int]:
    async with world.engine.connect() as conn:
        both = "select hints from jobs union all select hints from attempts"
        return list((await conn.execute(text(both))).scalars())
