"""/v1/api_keys: made, listed, revoked, used; and what somebody without a good key is told."""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import event, select

from contract.choices import Scope
from service import console
from service.api.app import make_app
from service.db.projects import keys as key_rows
from service.db.schema.tables import api_keys
from service.domain.queue.admission import ProjectQuota
from service.operations.projects import sign_in
from service.operations.projects.keys import USE_INTERVAL
from tests.integration.finished_jobs import make_model
from tests.served import served
from tests.world import MODEL, World, bearer, client

KEYS = "/v1/api_keys"


async def refusal(world: World, **headers: str) -> str:
    response = await world.http.get("/v1/files", headers=headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (401, "invalid_api_key")
    assert (error["type"], response.headers["www-authenticate"]) == (
        "authentication_error",
        "Bearer",
    )
    return str(error["message"])


async def test_a_new_key_opens_the_same_project_and_is_shown_once(world: World) -> None:
    file = await world.upload()
    world.clock.advance(seconds=1)

    api_key = (await world.call("POST", KEYS, json={"name": "laptop"})).json()
    keys = (await world.call("GET", KEYS)).json()["data"]

    assert set(api_key) == {
        *("id", "object", "name", "hint", "scope", "created_at", "created_by"),
        *("expires_at", "last_used_at", "key"),
    }
    assert (api_key["object"], api_key["name"]) == ("api_key", "laptop")
    assert api_key["key"].startswith("rk-")
    assert api_key["hint"] == f"rk-...{api_key['key'][-4:]}"
    assert keys[0] == {k: v for k, v in api_key.items() if k != "key"}
    response = await world.call("GET", f"/v1/files/{file}", headers=bearer(api_key["key"]))
    assert response.status_code == 200


async def test_keys_are_listed_page_by_page_newest_first(world: World) -> None:
    for name in ("a", "b", "c"):
        world.clock.advance(seconds=1)
        await world.call("POST", KEYS, json={"name": name})

    first = (await world.call("GET", f"{KEYS}?limit=2")).json()
    second = (await world.call("GET", f"{KEYS}?limit=2&after={first['last_id']}")).json()

    assert [k["name"] for k in first["data"] + second["data"]] == ["c", "b", "a", "tests"]
    assert (first["has_more"], second["has_more"]) == (True, False)


async def test_a_revoked_key_is_refused_with_the_time_and_is_not_listed(world: World) -> None:
    api_key = (await world.call("POST", KEYS, json={"name": "laptop"})).json()
    world.clock.advance(seconds=60)
    when = world.clock().strftime("%Y-%m-%d %H:%M UTC")

    response = await world.call("DELETE", f"{KEYS}/{api_key['id']}")
    world.clock.advance(seconds=600)
    second = await world.call("DELETE", f"{KEYS}/{api_key['id']}")

    assert response.json() == {
        "id": api_key["id"],
        "object": "api_key",
        "deleted": True,
        "keys_left": 1,
    }
    assert second.json() == response.json()
    message = await refusal(world, **bearer(api_key["key"]))
    assert "'laptop'" in message
    assert f"revoked at {when}" in message
    assert "service.main key create" in message
    assert [k["name"] for k in (await world.call("GET", KEYS)).json()["data"]] == ["tests"]
    page = await world.call("GET", f"{KEYS}?after={api_key['id']}")
    assert page.status_code == 200, "a key revoked while paging is still a cursor"


async def test_the_last_key_can_go_and_the_answer_says_that_none_is_left(world: World) -> None:
    (own_key,) = (await world.call("GET", KEYS)).json()["data"]

    response = await world.call("DELETE", f"{KEYS}/{own_key['id']}")

    assert response.json()["keys_left"] == 0
    assert "was revoked" in await refusal(world, **bearer(world.key))


async def test_lists_stay_within_the_project_of_the_key(world: World) -> None:
    await make_model(world)
    other_project = replace(world, key=await world.other_key())

    for path in ("/v1/fine_tuning/jobs", "/v1/files", "/v1/models", KEYS):
        own_keys, other_keys = [
            {key["id"] for key in (await project.call("GET", path)).json()["data"]}
            for project in (world, other_project)
        ]
        assert own_keys - {MODEL}, path
        assert own_keys & other_keys <= {MODEL}, path


HEADERS = {
    None: "No API key was sent",
    "": "No API key was sent",
    "Basic cms6cms=": "no bearer key",
    "Bearer": "no bearer key",
    "Bearer  ": "no bearer key",
    "rk-abcdefgh": "no bearer key",
    "Bearer sk-proj-abc": "begin with 'rk-'",
    'Bearer "rk-abc"': "in quotes",
    "Bearer rk-unknown-wxyz": "ends in 'wxyz'",
}


async def test_a_header_without_a_good_key_is_refused_with_what_to_send(world: World) -> None:
    for header, reason in HEADERS.items():
        message = await refusal(world, **({} if header is None else {"authorization": header}))

        assert reason in message, header
        assert "rk-" in message or "key create" in message
    assert "ends in 'wxyz'" in await refusal(world, **{"api-key": "rk-unknown-wxyz"})  # Azure's


async def test_the_last_use_is_noted_now_and_then_and_not_with_every_request(world: World) -> None:
    writes: list[str] = []

    def count(conn: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE api_keys"):
            writes.append(statement)

    engine = world.engine.sync_engine
    event.listen(engine, "before_cursor_execute", count)
    try:
        for _ in range(5):
            await world.call("GET", "/v1/files")
        first = world.clock()
        world.clock.advance(seconds=(USE_INTERVAL + timedelta(seconds=1)).total_seconds())
        (key,) = (await world.call("GET", KEYS)).json()["data"]
    finally:
        event.remove(engine, "before_cursor_execute", count)

    assert len(writes) == 2
    assert key["last_used_at"] == int(world.clock().timestamp()) > int(first.timestamp())


async def test_keys_are_not_logged_nor_kept(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(make_app(world.parts)):
        api_key = (await world.call("POST", KEYS, json={"name": "laptop"})).json()["key"]
        for key in (api_key, world.key, f"{api_key}x", f"sk-{api_key}"):
            await world.call("GET", "/v1/files", headers=bearer(key))
            await world.call("GET", "/v1/nothing", headers=bearer(key))
    async with world.engine.connect() as conn:
        rows = (await conn.execute(select(api_keys))).all()

    logged = "\n".join(json.dumps(vars(r), default=str) for r in caplog.records)
    assert caplog.records
    for text in (logged, repr(rows)):
        assert api_key not in text
        assert world.key not in text


async def test_a_key_works_from_another_replica_at_once(world: World) -> None:
    api_key = (await world.call("POST", KEYS, json={"name": "laptop"})).json()
    async with client(make_app(world.parts)) as http:
        assert (await http.get("/v1/files", headers=bearer(api_key["key"]))).status_code == 200
        await world.call("DELETE", f"{KEYS}/{api_key['id']}")
        assert (await http.get("/v1/files", headers=bearer(api_key["key"]))).status_code == 401


PATH = "/v1/sign_in"


async def token(world: World, scope: Scope = Scope.WRITE) -> str:
    async with world.engine.begin() as conn:
        return await sign_in.create_token(conn, "tests", scope, world.clock())


async def send(world: World, value: str) -> httpx.Response:
    return await world.http.post(PATH, json={"token": value})


async def test_a_token_becomes_a_key_that_opens_its_project_for_half_a_day(world: World) -> None:
    api_key = (await send(world, await token(world))).json()
    headers = {"authorization": f"Bearer {api_key['key']}"}
    now = await world.http.get("/v1/files", headers=headers)
    keys = (await world.http.get("/v1/api_keys", headers=headers)).json()["data"]
    world.clock.advance(seconds=12 * 3600)
    second = await world.http.get("/v1/files", headers=headers)

    assert (api_key["name"], api_key["scope"]) == ("console", "write")
    assert api_key["id"] in [key["id"] for key in keys]
    assert now.status_code == 200
    assert second.json()["error"]["code"] == "expired_api_key"


async def test_used_expired_and_wrong_tokens_are_refused_alike(world: World) -> None:
    used_token, old_token = await token(world), await token(world)
    await send(world, used_token)
    responses = [await send(world, used_token), await send(world, "guess")]
    world.clock.advance(seconds=600)
    responses.append(await send(world, old_token))

    assert [response.status_code for response in responses] == [401] * 3
    assert len({response.text for response in responses}) == 1
    assert responses[0].json()["error"]["code"] == "invalid_sign_in"


async def test_one_of_two_concurrent_sign_ins_gets_a_key(world: World) -> None:
    value = await token(world)

    responses = await asyncio.gather(*(send(world, value) for _ in range(5)))

    assert sorted(response.status_code for response in responses) == [200, 401, 401, 401, 401]


async def test_expired_keys_of_the_console_do_not_pile_up(world: World) -> None:
    await send(world, await token(world))
    world.clock.advance(seconds=13 * 3600)
    api_key = (await send(world, await token(world))).json()

    async with world.engine.connect() as conn:
        key = await key_rows.newest(conn, await _project(world), after=None, limit=None)
    assert [row.id for row in key if row.name == "console"] == [api_key["id"]]


async def test_the_services_command_prints_a_token(world: World) -> None:
    options = console.parse_arguments(None, ["sign-in", "--project", "tests", "--scope", "read"])
    (printed,) = await console.run_command(world.engine, options, world.clock(), ProjectQuota())

    assert (await send(world, printed)).json()["scope"] == "read"


async def _project(world: World) -> str:
    async with world.engine.connect() as conn:
        project = await key_rows.find_project(conn, "tests")
    assert project is not None
    return project
