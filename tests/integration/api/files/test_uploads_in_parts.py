"""/v1/uploads: parts in any order and to any replica, resumable, and nothing left of what fails."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest
from openai import AsyncOpenAI

from service.api.app import make_app
from service.db.files.uploads import LIFE
from service.operations.files.uploads import PART_BYTES, Staging
from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.integration.api.files.upload_parts import (
    HALVES,
    MULTIPART,
    PART_FORM,
    begin_upload,
    complete_upload,
    count_leftovers,
    error_of,
    send_part,
    show_upload,
    sweep_of,
    upload_halves,
)
from tests.served import served
from tests.world import DATASET, World


async def test_openais_client_uploads_a_file_in_parts(world: World, azurite: Azurite) -> None:
    store = AzureBlobStore(azurite.connection_string)
    app = make_app(replace(world.parts, store=store))
    async with served(app) as url, AsyncExitStack() as clients:
        openai = await clients.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key=world.key)
        )
        upload = await openai.uploads.upload_file_chunked(
            file=DATASET,
            filename="t.jsonl",
            bytes=len(DATASET),
            mime_type="application/jsonl",
            purpose="fine-tune",
            part_size=1000,
            md5=hashlib.md5(DATASET, usedforsecurity=False).hexdigest(),
        )
        assert upload.file is not None
        content = await openai.files.content(upload.file.id)
        assert (upload.status, upload.file.status, upload.file.bytes) == (
            "completed",
            "processed",
            len(DATASET),
        )
        assert content.content == DATASET
        assert (await openai.uploads.complete(upload.id, part_ids=["any"])).file == upload.file
        await openai.files.delete(upload.file.id)
    await store.close()


async def test_a_client_that_lost_its_answers_finds_what_came_and_goes_on(world: World) -> None:
    """A part that came twice is harmless; the one that is not named is dropped."""
    upload = await begin_upload(world, expires_after={"anchor": "created_at", "seconds": 7200})
    for half in (HALVES[1], HALVES[0], HALVES[0]):  # in parallel they may come so
        await send_part(world, upload, half)
    view = await show_upload(world, upload)
    by_md5 = {part["md5"]: part["id"] for part in view["parts"]}
    part_ids = [by_md5[hashlib.md5(half, usedforsecurity=False).hexdigest()] for half in HALVES]

    assert (view["status"], sorted(part["bytes"] for part in view["parts"])) == (
        "pending",
        sorted((len(HALVES[1]), len(HALVES[0]), len(HALVES[0]))),
    )
    assert view["filename"] == "träin.jsonl"
    completed = (await complete_upload(world, upload, part_ids)).json()
    second = (await complete_upload(world, upload, part_ids)).json()
    assert completed == second == await show_upload(world, upload)
    assert completed["file"]["expires_at"] == completed["created_at"] + 7200
    content = await world.call("GET", f"/v1/files/{completed['file']['id']}/content")
    assert content.content == DATASET
    assert error_of(await send_part(world, upload, b"late"))[:2] == (404, "upload_not_found")
    assert error_of(await world.call("POST", f"/v1/uploads/{upload}/cancel"))[:2] == (
        409,
        "invalid_upload_state",
    )


async def test_concurrent_parts_and_completions_make_one_file(listening_world: World) -> None:
    world = listening_world
    rows = DATASET.split(b"\n")
    chunks = [row + b"\n" for row in rows[:-1]] + rows[-1:]
    upload = await begin_upload(world)
    part_responses = await asyncio.gather(*(send_part(world, upload, chunk) for chunk in chunks))
    ids = [response.json()["id"] for response in part_responses]

    responses = await asyncio.gather(*(complete_upload(world, upload, ids) for _ in range(5)))

    assert {response.status_code for response in responses} == {200}
    assert len({response.json()["file"]["id"] for response in responses}) == 1
    assert len((await world.call("GET", "/v1/files")).json()["data"]) == 1


async def test_a_wrong_completion_changes_nothing_and_may_be_corrected(world: World) -> None:
    upload, (first, second) = await upload_halves(world)
    third_part = (await send_part(world, upload, b"x")).json()["id"]

    mismatch = error_of(await complete_upload(world, upload, [first, second], md5="0" * 32))
    assert mismatch[:2] == (400, "checksum_mismatch")
    status, _, message = error_of(await complete_upload(world, upload, [third_part, second]))
    assert (status, "dropped it" in message) == (400, True)
    assert (await show_upload(world, upload))["status"] == "pending"
    md5 = hashlib.md5(DATASET, usedforsecurity=False).hexdigest().upper()
    assert (await complete_upload(world, upload, [first, second], md5=md5)).status_code == 200


async def test_wrong_rows_are_refused_once_and_for_all_and_leave_no_bytes(world: World) -> None:
    invalid_rows = DATASET + b'\n{"messages": []}'
    upload = await begin_upload(world, bytes=len(invalid_rows))
    part_id = (await send_part(world, upload, invalid_rows)).json()["id"]

    first, second = [await complete_upload(world, upload, [part_id]) for _ in range(2)]

    assert error_of(first)[:2] == (400, "invalid_file_format")
    assert first.json() == second.json()
    assert first.json()["error"]["errors"][0]["line"] == 41
    view = await show_upload(world, upload)
    assert (view["status"], "line 41" in view["status_details"]) == ("cancelled", True)
    assert (await count_leftovers(world))[2] == 0
    assert (await world.call("GET", "/v1/files")).json()["data"] == []


@pytest.mark.parametrize(
    ("size", "code", "detail"),
    [(0, "invalid_value", "empty"), (PART_BYTES + 1, "payload_too_large", "at most 67108864")],
)
async def test_a_part_of_a_wrong_size_is_refused(
    world: World, size: int, code: str, detail: str
) -> None:
    upload = await begin_upload(world)

    refusal = error_of(await send_part(world, upload, b"x" * size))

    assert (refusal[1], detail in refusal[2]) == (code, True)
    assert (await show_upload(world, upload))["parts"] == []
    assert (await count_leftovers(world))[2] == 0


async def test_a_client_that_falls_silent_gives_its_slot_to_others(world: World) -> None:
    upload = await begin_upload(world)
    staging = Staging(slots=asyncio.Semaphore(1), silence_timeout=timedelta(milliseconds=50))

    async def silent() -> AsyncIterator[bytes]:
        yield PART_FORM
        await asyncio.Event().wait()

    path = f"/v1/uploads/{upload}/parts"
    async with world.beside(staging=staging) as replica:
        responses = await asyncio.gather(
            replica.call("POST", path, content=silent(), headers=MULTIPART),
            send_part(replica, upload, b"x"),
        )

    assert error_of(responses[0])[:2] == (408, "request_timeout")
    assert responses[1].status_code == 200
    assert len((await show_upload(world, upload))["parts"]) == 1


async def test_nothing_is_left_of_a_cancelled_upload(world: World) -> None:
    upload, part_ids = await upload_halves(world)

    for _ in range(2):
        response = await world.call("POST", f"/v1/uploads/{upload}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    assert (await count_leftovers(world))[2] == 0
    for late_response in (
        await send_part(world, upload, b"x"),
        await complete_upload(world, upload, part_ids),
    ):
        assert error_of(late_response)[:2] == (409, "invalid_upload_state")
    world.clock.advance(seconds=LIFE.total_seconds())
    await sweep_of(world).run_once()
    assert await count_leftovers(world) == (0, 0, 0)
    assert (await world.call("GET", f"/v1/uploads/{upload}")).status_code == 404


async def test_an_upload_expires_an_hour_after_its_last_part(world: World) -> None:
    upload = await begin_upload(world)
    world.clock.advance(seconds=LIFE.total_seconds() - 1)
    await send_part(world, upload, HALVES[0])
    world.clock.advance(seconds=LIFE.total_seconds() - 1)
    await sweep_of(world).run_once()
    assert (await show_upload(world, upload))["status"] == "pending"

    world.clock.advance(seconds=2)
    assert "expired" in error_of(await send_part(world, upload, HALVES[1]))[2]
    await sweep_of(world).run_once()
    assert (await show_upload(world, upload))["status"] == "expired"
    assert (await count_leftovers(world))[2] == 0
    world.clock.advance(seconds=LIFE.total_seconds())
    await sweep_of(world).run_once()
    assert await count_leftovers(world) == (0, 0, 0)


async def test_a_part_on_its_way_at_the_cancel_leaves_nothing(world: World) -> None:
    upload = await begin_upload(world)

    async def late() -> AsyncIterator[bytes]:
        yield PART_FORM
        await world.call("POST", f"/v1/uploads/{upload}/cancel")
        yield b"\r\n--b--\r\n"

    path = f"/v1/uploads/{upload}/parts"
    response = await world.call("POST", path, content=late(), headers=MULTIPART)

    assert error_of(response)[:2] == (409, "invalid_upload_state")
    assert (await count_leftovers(world))[2] == 0
