"""Every way to be refused, as OpenAI's client meets it: class, code, parameter, what to do."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

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
from tests.world import MODEL, World
from tests.world import client as http_client

Act = Callable[[AsyncOpenAI, str], Awaitable[Any]]
JOBS = "/v1/fine_tuning/jobs"


@pytest.fixture
async def client(world: World) -> AsyncIterator[AsyncOpenAI]:
    """Yield a client without retries, which shows the first answer."""
    async with (
        served(make_app(world.parts)) as url,
        AsyncOpenAI(api_key=world.key, base_url=f"{url}/v1", max_retries=0) as made,
    ):
        yield made


def create(**more: Any) -> Act:  # noqa: ANN401 - any body at all
    async def act(client: AsyncOpenAI, file: str) -> object:
        body = {"model": MODEL, "training_file": file} | more
        return await client.post("/fine_tuning/jobs", body=body, cast_to=object)

    return act


def get(path: str) -> Act:
    return lambda client, _: client.get(path, cast_to=object)


@pytest.mark.parametrize(
    ("act", "kind", "code", "param"),
    [
        (get("/fine_tuning/jobs/ftjob-1"), openai.NotFoundError, "job_not_found", None),
        (create(), openai.BadRequestError, "file_not_found", "training_file"),
        (create(suffix="a\0b"), openai.BadRequestError, "invalid_value", "suffix"),
        (get("/files?limit=0"), openai.BadRequestError, "invalid_value", "limit"),
    ],
)
async def test_openais_client_knows_a_refusal_by_its_class(
    client: AsyncOpenAI, act: Act, kind: type[openai.APIStatusError], code: str, param: str | None
) -> None:
    with pytest.raises(kind) as refused:
        await act(client, "file-1")

    error = refused.value
    assert (error.code, error.param, error.type) == (code, param, "invalid_request_error")
    assert error.request_id
    assert len(str(error.body["message"])) > 10  # type: ignore[index]


async def test_a_wrong_key_is_an_authentication_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        await client.with_options(api_key="rk-wrong").files.list()

    assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")


@pytest.mark.parametrize("authorization", [b"", b"Basic x", b"Bearer", "Bearer é".encode()])
async def test_no_key_is_refused_before_anything_is_looked_at(
    world: World, authorization: bytes
) -> None:
    header = [(b"authorization", authorization)]
    for method, path in (("GET", JOBS), ("POST", JOBS), ("POST", "/v1/files")):
        answer = await world.http.request(method, path, headers=header, content=b"{")

        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_store_that_does_not_answer_is_worth_another_try(world: World) -> None:
    class Away(MemoryStore):
        async def read(self, *_: str, most: int = 0) -> tuple[bytes, str]:  # noqa: ARG002 - theirs
            raise StorageError("no route")

    body = {"model": MODEL, "training_file": await world.upload()}
    async with http_client(make_app(replace(world.parts, store=Away()))) as http:
        answer = await http.post(JOBS, json=body, headers={"authorization": f"Bearer {world.key}"})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "no route" not in answer.text


async def test_our_own_fault_is_answered_with_an_id_to_report(world: World) -> None:
    class Broken(MemoryStore):
        async def read(self, *_: str, most: int = 0) -> tuple[bytes, str]:  # noqa: ARG002 - theirs
            raise ZeroDivisionError("a bug")

    body = {"model": MODEL, "training_file": await world.upload()}
    async with http_client(make_app(replace(world.parts, store=Broken()))) as http:
        headers = {"authorization": f"Bearer {world.key}", "x-request-id": "mine-7"}
        answer = await http.post(JOBS, json=body, headers=headers)

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"] == "mine-7"
    assert "a bug" not in answer.text


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
    done = []

    class Asks(MemoryStore):
        async def read(self, *_: str, most: int = 0) -> tuple[bytes, str]:  # noqa: ARG002 - theirs
            async with world.engine.connect() as conn:
                done.append(await conn.exec_driver_sql(statement, values or None))
            return b"", ""

    body = {"model": MODEL, "training_file": await world.upload()}
    async with http_client(make_app(replace(world.parts, store=Asks()))) as http:
        answer = await http.post(JOBS, json=body, headers={"authorization": f"Bearer {world.key}"})

    assert (answer.status_code, answer.headers.get("retry-after")) == expected
    assert done == []


async def test_what_could_not_be_committed_is_never_answered_200(world: World) -> None:
    job = await world.submit()
    file = await world.upload()
    answers: list[httpx.Response] = []
    async with world.engine.begin() as conn:
        await conn.execute(text(_REFUSE))
        await conn.execute(text(_AT_COMMIT))
    try:
        answers.append(await world.call("POST", f"{JOBS}/{job['id']}/cancel"))
        answers.append(await world.call("POST", JOBS, json={"model": MODEL, "training_file": file}))
    finally:
        async with world.engine.begin() as conn:
            await conn.execute(text("drop function refuse cascade"))

    assert [a.status_code for a in answers] == [500, 500]
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


async def test_a_database_that_goes_while_a_body_is_read_is_no_fault_of_the_body(
    world: World,
) -> None:
    def lose_connection(*_: object) -> None:
        raise OperationalError(None, None, OSError("the server closed the connection"))

    key = await world.other_key()
    body = await world.asked()
    event.listen(world.engine.sync_engine, "before_cursor_execute", lose_connection)
    try:
        answer = await world.http.post(
            "/v1/fine_tuning/jobs", json=body, headers={"authorization": f"Bearer {key}"}
        )
    finally:
        event.remove(world.engine.sync_engine, "before_cursor_execute", lose_connection)

    assert answer.status_code == 503, answer.text
