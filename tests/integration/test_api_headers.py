"""Headers of a request to create a job."""

import httpx
import pytest

from tests.world import MODEL, World

JOBS = "/v1/fine_tuning/jobs"


async def send(world: World, **headers: str) -> httpx.Response:
    body = {"model": MODEL, "training_file": await world.upload(), "seed": 7}
    return await world.call("POST", JOBS, json=body, headers=headers)


async def test_a_header_that_says_what_holds_anyway_is_taken(world: World) -> None:
    answer = await send(world, **{"x-stainless-retry-count": "0"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("header", "value", "param"),
    [
        ("x-stainless-retry-count", "often", "x-stainless-retry-count"),
        ("idempotency-key", "", "idempotency-key"),
        ("idempotency-key", "k" * 256, "idempotency-key"),
    ],
)
async def test_a_bad_header_is_refused(world: World, header: str, value: str, param: str) -> None:
    answer = await send(world, **{header: value})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_key_that_reads_as_none_is_a_key(world: World) -> None:
    first = await send(world, **{"idempotency-key": "None"})
    again = await send(world, **{"idempotency-key": "None"})  # with another file

    assert first.status_code == 200
    assert again.json()["error"]["code"] == "idempotency_key_reused"


async def test_nobody_without_a_key_makes_or_ends_a_job(world: World) -> None:
    job = (await world.submit())["id"]
    for path in (JOBS, f"{JOBS}/{job}/cancel"):
        answer = await world.http.post(path, json={}, headers={"authorization": "Bearer other"})
        assert answer.status_code == 401
