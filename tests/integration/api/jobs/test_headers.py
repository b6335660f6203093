"""Headers of a request to create a job."""

import httpx

from tests.world import MODEL, World

JOBS = "/v1/fine_tuning/jobs"


async def send(world: World, **headers: str) -> httpx.Response:
    body = {"model": MODEL, "training_file": await world.upload(), "seed": 7}
    return await world.call("POST", JOBS, json=body, headers=headers)


async def test_a_header_that_says_what_holds_anyway_is_taken(world: World) -> None:
    answer = await send(world, **{"x-stainless-retry-count": "0"})

    assert answer.status_code == 200


async def test_a_key_that_reads_as_none_is_a_key(world: World) -> None:
    first = await send(world, **{"idempotency-key": "None"})
    again = await send(world, **{"idempotency-key": "None"})  # with another file

    assert first.status_code == 200
    assert again.json()["error"]["code"] == "idempotency_key_reused"
