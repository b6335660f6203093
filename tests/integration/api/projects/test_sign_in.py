"""Signing in: a one-time token becomes one key of half a day, and says nothing when refused."""

import asyncio

import httpx

from contract.choices import Scope
from service import console
from service.db.projects import keys as key_rows
from service.domain.queue.admission import ProjectQuota
from service.operations.projects import sign_in
from tests.world import World

PATH = "/v1/sign_in"


async def token(world: World, scope: Scope = Scope.WRITE) -> str:
    async with world.engine.begin() as conn:
        return await sign_in.create_token(conn, "tests", scope, world.clock())


async def send(world: World, value: str) -> httpx.Response:
    return await world.http.post(PATH, json={"token": value})


async def test_a_token_becomes_a_key_that_opens_its_project_for_half_a_day(world: World) -> None:
    made = (await send(world, await token(world))).json()
    headers = {"authorization": f"Bearer {made['key']}"}
    now = await world.http.get("/v1/files", headers=headers)
    listed = (await world.http.get("/v1/api_keys", headers=headers)).json()["data"]
    world.clock.advance(seconds=12 * 3600)
    later = await world.http.get("/v1/files", headers=headers)

    assert (made["name"], made["scope"]) == ("console", "write")
    assert made["id"] in [key["id"] for key in listed]
    assert now.status_code == 200
    assert later.json()["error"]["code"] == "expired_api_key"


async def test_used_expired_and_wrong_tokens_are_refused_alike(world: World) -> None:
    used, old = await token(world), await token(world)
    await send(world, used)
    answers = [await send(world, used), await send(world, "guess")]
    world.clock.advance(seconds=600)
    answers.append(await send(world, old))

    assert [answer.status_code for answer in answers] == [401] * 3
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["error"]["code"] == "invalid_sign_in"


async def test_one_of_two_concurrent_sign_ins_gets_a_key(world: World) -> None:
    value = await token(world)

    answers = await asyncio.gather(*(send(world, value) for _ in range(5)))

    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401]


async def test_expired_keys_of_the_console_do_not_pile_up(world: World) -> None:
    await send(world, await token(world))
    world.clock.advance(seconds=13 * 3600)
    made = (await send(world, await token(world))).json()

    async with world.engine.connect() as conn:
        key = await key_rows.newest(conn, await _project(world), after=None, limit=None)
    assert [one.id for one in key if one.name == "console"] == [made["id"]]


async def test_the_services_command_prints_a_token(world: World) -> None:
    options = console.parse_arguments(None, ["sign-in", "--project", "tests", "--scope", "read"])
    (printed,) = await console.run_command(world.engine, options, world.clock(), ProjectQuota())

    assert (await send(world, printed)).json()["scope"] == "read"


async def _project(world: World) -> str:
    async with world.engine.connect() as conn:
        found = await key_rows.find_project(conn, "tests")
    assert found is not None
    return found
