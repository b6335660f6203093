"""A node, or whoever holds its SAS, writes to a finished model: nobody gets what it wrote."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service.domain.errors import ContentChanged
from service.operations.storage.integrity import verify_chunks
from tests.integration.finished_jobs import FILES, make_model
from tests.integration.manifests import seal
from tests.nodes.forged import forged
from tests.world import DATASET, JOBS, World
from trainer.contract import HEAD, MANIFEST, Head

WEIGHTS = "model.safetensors"
Json = dict[str, Any]


async def download(world: World, job: Json, name: str = WEIGHTS, **options: Any) -> httpx.Response:  # noqa: ANN401
    return await world.call("GET", f"{JOBS}/{job['id']}/model/{name}", **options)


async def overwrite_blob(world: World, job: Json, name: str, data: bytes) -> None:
    await world.store.write(job["id"], f"{job['result']['path']}/{name}", data)


async def check_refusal(response: httpx.Response) -> str:
    """Return the message of a refusal that is not worth a retry."""
    assert response.status_code == 409, response.text
    assert response.json()["error"]["code"] == "content_changed"
    assert response.headers["x-should-retry"] == "false"
    return str(response.json()["error"]["message"])


async def test_a_forged_file_of_the_same_size_and_crc_is_not_served(world: World) -> None:
    job = await make_model(world)
    before = await download(world, job)
    await overwrite_blob(world, job, WEIGHTS, forged(FILES[WEIGHTS]))

    for headers in ({}, {"range": "bytes=1000-"}):
        message = await check_refusal(await download(world, job, headers=headers))
        assert f"{WEIGHTS} of container {job['id']} is not what the job has committed" in message
        assert "Restore the blob" in message
    assert before.content == FILES[WEIGHTS]
    assert (await download(world, job, "config.json")).content == FILES["config.json"]


async def test_a_forged_model_with_its_manifest_and_head_is_not_served_and_not_begun_with(
    world: World,
) -> None:
    job = await make_model(world)
    path = job["result"]["path"]
    digest = await seal(world.store, job["id"], path, FILES | {WEIGHTS: b"another"})
    data, _ = await world.store.read(job["id"], HEAD)
    head = Head.from_json(data)
    assert head.model is not None
    head_json = replace(head, model=replace(head.model, manifest_sha256=digest)).to_json()
    await world.store.write(job["id"], HEAD, head_json.encode())
    await world.tick(3)

    model_files = await world.call("GET", f"{JOBS}/{job['id']}/model")
    body = await world.job_request() | {"model": job["id"]}
    submitted = await world.call("POST", JOBS, json=body)

    assert f"Blob {path}/{MANIFEST}" in await check_refusal(model_files)
    assert f"Blob {path}/{MANIFEST}" in await check_refusal(await download(world, job))
    assert submitted.json()["error"]["code"] == "unsupported_model"
    assert "is not what the job has committed" in submitted.json()["error"]["message"]
    assert (await world.job(job["id"]))["result"] == job["result"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
async def test_no_job_begins_with_a_forged_file_of_a_model(world: World, name: str) -> None:
    job = await make_model(world)
    await overwrite_blob(world, job, name, forged(FILES[name]))
    rows = await world.upload(DATASET + b"\n" + DATASET)  # of which no check is kept
    response = await world.call("POST", JOBS, json={"model": job["id"], "training_file": rows})
    error = response.json()["error"]
    if not response.is_error:  # found once its rows are rendered
        await world.tick(3)
        error = (await world.job(response.json()["id"]))["error"]

    assert error["code"] == "unsupported_model"
    assert f"{name} is not what was committed" in error["message"]


async def test_a_file_that_was_restored_is_served_though_its_etag_is_new(world: World) -> None:
    job = await make_model(world)
    await overwrite_blob(world, job, WEIGHTS, FILES[WEIGHTS])

    complete = await download(world, job)
    remainder = await download(world, job, headers={"range": "bytes=1000-"})

    assert complete.content == FILES[WEIGHTS]
    assert remainder.content == FILES[WEIGHTS][1000:]


async def test_rows_that_are_not_those_that_were_uploaded_are_not_trained_on(world: World) -> None:
    body = await world.job_request()
    data, _ = await world.store.read("files", body["training_file"])
    await world.store.write("files", body["training_file"], data.replace(b"a", b"b", 1))
    job = (await world.call("POST", JOBS, json=body)).json()
    await world.tick(3)

    error = (await world.job(job["id"]))["error"]
    assert error["code"] == "content_changed"
    assert "Upload it again" in error["message"]


async def test_the_last_bytes_of_a_stream_with_another_hash_are_held_back() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"one ", b"two ", b"three"):
            yield chunk

    fault = ContentChanged("changed")
    right = hashlib.sha256(b"one two three").hexdigest()
    passing = verify_chunks(chunks(), "0" * 64, fault)

    assert [await anext(passing), await anext(passing)] == [b"one ", b"two "]
    with pytest.raises(ContentChanged):
        await anext(passing)
    assert [c async for c in verify_chunks(chunks(), right, fault)] == [b"one ", b"two ", b"three"]
