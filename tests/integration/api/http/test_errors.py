"""Faults of the store, of PostgreSQL and of ours: what may be retried, and what is not told."""

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from service.api.app import make_app
from service.storage.fake import MemoryStore
from service.storage.store import StorageError
from tests.served import served
from tests.world import JOBS, MODEL, World


async def test_a_wrong_key_is_an_authentication_error(world: World) -> None:
    async with (
        served(make_app(world.parts)) as url,
        AsyncOpenAI(api_key="rk-wrong", base_url=f"{url}/v1", max_retries=0) as client,
    ):
        with pytest.raises(openai.AuthenticationError) as error:
            await client.files.list()

    assert (error.value.code, error.value.type) == ("invalid_api_key", "authentication_error")


@pytest.mark.parametrize("authorization", [b"", b"Basic x", b"Bearer", "Bearer é".encode()])
async def test_no_key_is_refused_before_anything_is_looked_at(
    world: World, authorization: bytes
) -> None:
    header = [(b"authorization", authorization)]
    for method, path in (("GET", JOBS), ("POST", JOBS), ("POST", "/v1/files")):
        response = await world.http.request(method, path, headers=header, content=b"{")

        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


async def submit_beside(world: World, store: MemoryStore) -> httpx.Response:
    """Submit a job to a service with this store."""
    body = {"model": MODEL, "training_file": await world.upload()}
    async with world.beside(store=store) as replica:
        return await replica.call("POST", JOBS, json=body)


async def test_a_store_that_does_not_answer_is_worth_another_try(world: World) -> None:
    class Away(MemoryStore):
        async def read(self, *_: str, most: int = 0) -> tuple[bytes, str]:  # noqa: ARG002 - theirs
            raise StorageError("no route")

    response = await submit_beside(world, Away())

    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert "no route" not in response.text


@pytest.mark.parametrize(
    ("statement", "values", "expected"),
    [
        pytest.param(
            "do $$ begin raise sqlstate '40P01'; end $$", (), (503, "5"), id="PostgreSQL ended it"
        ),
        pytest.param(
            f"select {', '.join(['%s'] * 66_000)}",
            ("x",) * 66_000,
            (500, None),
            id="the driver cannot send it",
        ),
    ],
)
async def test_retryable_failures_are_separate_from_final_ones(
    world: World, statement: str, values: tuple[str, ...], expected: tuple[int, str | None]
) -> None:
    finished = []

    class Asks(MemoryStore):
        async def read(self, *_: str, most: int = 0) -> tuple[bytes, str]:  # noqa: ARG002 - theirs
            async with world.engine.connect() as conn:
                finished.append(await conn.exec_driver_sql(statement, values or None))
            return b"", ""

    response = await submit_beside(world, Asks())

    assert (response.status_code, response.headers.get("retry-after")) == expected
    assert finished == []


async def test_what_could_not_be_committed_is_never_answered_200(world: World) -> None:
    job = await world.submit()
    file = await world.upload()
    responses: list[httpx.Response] = []
    async with world.engine.begin() as conn:
        await conn.execute(text(_REFUSE))
        await conn.execute(text(_AT_COMMIT))
    try:
        responses.append(await world.call("POST", f"{JOBS}/{job['id']}/cancel"))
        responses.append(
            await world.call("POST", JOBS, json={"model": MODEL, "training_file": file})
        )
    finally:
        async with world.engine.begin() as conn:
            await conn.execute(text("drop function refuse cascade"))

    assert [a.status_code for a in responses] == [500, 500]
    assert (await world.job(job["id"]))["status_reason"]["code"] != "cancelling"
    assert len((await world.call("GET", JOBS)).json()["data"]) == 1


_REFUSE = """
create function refuse() returns trigger language plpgsql as
$$ begin raise exception 'no commit today'; end $$
"""
_AT_COMMIT = """
create constraint trigger refuse after insert or update on jobs
deferrable initially deferred for each row execute function refuse()
"""


async def test_a_database_that_goes_is_no_fault_of_the_body(world: World) -> None:
    def lose_connection(*_: object) -> None:
        raise OperationalError(None, None, OSError("the server closed the connection"))

    key = await world.other_key()
    body = await world.job_request()
    event.listen(world.engine.sync_engine, "before_cursor_execute", lose_connection)
    try:
        response = await world.http.post(
            JOBS, json=body, headers={"authorization": f"Bearer {key}"}
        )
    finally:
        event.remove(world.engine.sync_engine, "before_cursor_execute", lose_connection)

    assert response.status_code == 503, response.text
