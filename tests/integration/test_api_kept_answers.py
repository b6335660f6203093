"""A job that is asked for again and again: from memory while nothing is new, and never after."""

from typing import Any

from sqlalchemy import text

from service.db import notices, versions
from tests import waiting
from tests.world import World

JOBS = "/v1/fine_tuning/jobs"


async def changed_behind(world: World, job_id: str, seed: int, *, told: bool) -> None:
    """Another replica's write; that nobody tells of it cannot happen, and shows what is read."""
    async with world.engine.begin() as conn:
        await conn.execute(
            text("update jobs set model = :m where id = :id"), {"m": f"other-{seed}", "id": job_id}
        )
        if told:
            await versions.raise_one(conn, job_id, world.clock())


async def caught_up(world: World) -> None:
    """Wait until all that was told so far is heard: notices come in the order of commits."""
    async with world.listener.subscribed("caught-up") as heard:
        async with world.engine.begin() as conn:
            await notices.notify(conn, "caught-up")
        assert await notices.wait(heard, 10.0)


async def model(world: World, job_id: str, **more: Any) -> str:  # noqa: ANN401 - of httpx
    answer = await world.call("GET", f"{JOBS}/{job_id}", **more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["model"])


async def test_while_nothing_is_new_the_database_is_not_asked_again(heard: World) -> None:
    job = await heard.submit()
    await caught_up(heard)
    path = f"{JOBS}/{job['id']}"
    first = await heard.call("GET", path)
    await changed_behind(heard, job["id"], 1, told=False)
    again = await heard.call("GET", path)
    same = await heard.call("GET", path, headers={"if-none-match": first.headers["etag"]})
    waited = await model(heard, job["id"], params={"version": 0})

    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert (same.status_code, same.content) == (304, b"")
    assert waited == "other-1"  # who names a version is answered by the database


async def test_what_another_replica_did_is_shown_as_soon_as_it_is_told(heard: World) -> None:
    job = await heard.submit()
    await model(heard, job["id"])
    await changed_behind(heard, job["id"], 2, told=True)

    async def look() -> str:
        return await model(heard, job["id"])

    seen = await waiting.until(look, lambda now: now == "other-2", interval=0.01, deadline=3.0)

    assert seen == "other-2"  # sooner than what is kept ends by itself


async def test_whoever_changes_a_job_sees_it_also_before_the_notice(world: World) -> None:
    job = await world.submit()
    world.listener.hears = True  # but no notice ever comes
    path = f"{JOBS}/{job['id']}"
    before = (await world.call("GET", path)).json()
    await world.call("POST", f"{path}/cancel")
    after = (await world.call("GET", path)).json()

    assert (before["phase"], after["phase"]) == ("validating", "cancelling")


async def test_a_refusal_makes_nobody_read_again(heard: World) -> None:
    job = await heard.submit()
    await caught_up(heard)
    path = f"{JOBS}/{job['id']}"
    first = await heard.call("GET", path)
    await changed_behind(heard, job["id"], 4, told=False)
    refused = await heard.http.post(f"{path}/cancel")  # without a key
    again = await heard.call("GET", path)

    assert refused.status_code == 401
    assert again.content == first.content


async def test_a_kept_answer_is_nobody_elses(heard: World) -> None:
    job = await heard.submit()
    path = f"{JOBS}/{job['id']}"
    await heard.call("GET", path)
    head = {"authorization": f"Bearer {await heard.other_key()}"}
    theirs = await heard.http.get(path, headers=head)
    nobodys = await heard.http.get(path)

    assert (theirs.status_code, nobodys.status_code) == (404, 401)


async def test_a_revoked_key_opens_what_it_opened_no_more(heard: World) -> None:
    job = await heard.submit()
    path = f"{JOBS}/{job['id']}"
    made = (await heard.call("POST", "/v1/api_keys", json={"name": "short"})).json()
    head = {"authorization": f"Bearer {made['key']}"}
    opened = (await heard.http.get(path, headers=head)).status_code
    await heard.call("DELETE", f"/v1/api_keys/{made['id']}")

    async def look() -> int:
        return (await heard.http.get(path, headers=head)).status_code

    await waiting.until(look, lambda status: status == 401, interval=0.01, deadline=3.0)
    assert opened == 200


async def test_a_replica_that_hears_nothing_keeps_nothing(world: World) -> None:
    job = await world.submit()
    await model(world, job["id"])
    await changed_behind(world, job["id"], 3, told=False)

    assert await model(world, job["id"]) == "other-3"
