"""From one model to the next: what another job begins with, until it is deleted."""

import asyncio
import hashlib
import json
from typing import Any

import pytest
from sqlalchemy import text

from service.db.jobs import jobs
from service.operations.models import model_references
from tests import waiting
from tests.datasets import PAIRS, REWARD, labelled
from tests.integration.api.jobs.test_preferences import CLASSIFY, JOBS
from tests.integration.finished_jobs import FILES, READ, make_model
from tests.integration.stored_jobs import make_moves
from tests.nodes.scripted_node import boot
from tests.world import MODEL, TINY, World
from trainer.contract import MANIFEST, RUN_SPEC, RunSpec


async def refused_job(world: World, **body: object) -> dict[str, Any]:
    """Why no job comes of it."""
    request = {"training_file": await world.upload(), **body}
    response = await world.call("POST", JOBS, json=request)
    assert response.is_error, response.text
    error: dict[str, Any] = response.json()["error"]
    return {"status": response.status_code} | error


async def test_a_job_begins_with_what_another_one_has_made(world: World) -> None:
    first = await make_model(world, suffix="chatty")

    second = await world.submit(model=first["fine_tuned_model"])
    (node, *_) = await boot(world, second["id"])
    spec = RunSpec.from_json((await world.store.read(second["id"], RUN_SPEC))[0])

    path, project = f"{first['id']}/{first['result']['path']}", first["organization_id"]
    assert first["fine_tuned_model"] == f"ft:{MODEL}:{project}:chatty:{first['id']}"
    assert second["model"] == spec.base_model.name == first["fine_tuned_model"]
    assert spec.base_model.revision == first["result"]["manifest_sha256"]
    assert [(f.path, f.size, f.sha256) for f in spec.base_model.files] == [
        (f"{path}/{name}", len(FILES[name]), hashlib.sha256(FILES[name]).hexdigest())
        for name in READ
    ], "in one folder, and nothing that is no part of a model"
    assert node.seat is not None
    assert sorted(node.seat.grants.inputs) == sorted(
        [f"files/{second['training_file']}", *(f"{path}/{name}" for name in READ)]
    )


async def test_a_line_of_jobs_keeps_the_name_of_the_base_model(world: World) -> None:
    first = await make_model(world)
    second = await make_model(world, model=first["id"], suffix="more")
    third = await world.submit(model=second["fine_tuned_model"])

    models = (await world.call("GET", "/v1/models")).json()["data"]
    model_view = (await world.call("GET", f"/v1/models/{second['fine_tuned_model']}")).json()

    assert second["model"] == first["fine_tuned_model"], "in full, however it was named"
    assert (
        second["fine_tuned_model"] == f"ft:{MODEL}:{second['organization_id']}:more:{second['id']}"
    )
    assert third["model"] == second["fine_tuned_model"]
    assert second["fine_tuned_model"] in [model["id"] for model in models]
    assert model_view["base_model"] == first["fine_tuned_model"]


async def test_a_model_with_a_head_goes_on_by_its_own_method(world: World) -> None:
    pairs = await world.upload(PAIRS)
    judge = await make_model(world, training_file=pairs, method=REWARD)

    second_judge = await world.submit(model=judge["id"], training_file=pairs, method=REWARD)

    assert second_judge["model"] == judge["fine_tuned_model"]


async def test_a_classifier_goes_on_with_its_own_labels_only(world: World) -> None:
    rows = await world.upload(labelled("complaint", "praise"))
    config = TINY | {"id2label": {"0": "complaint", "1": "praise"}}
    files = FILES | {"config.json": json.dumps(config).encode()}
    job = await make_model(world, files, training_file=rows, method=CLASSIFY)
    other_file = await world.upload(labelled("complaint", "question"))

    same_labels = await world.submit(model=job["id"], training_file=rows, method=CLASSIFY)
    error = await refused_job(world, model=job["id"], training_file=other_file, method=CLASSIFY)

    assert same_labels["model"] == job["fine_tuned_model"]
    assert "complaint, praise apart" in error["message"]
    assert "complaint, question" in error["message"]


async def test_models_with_missing_or_changed_files_are_refused(world: World) -> None:
    deleted, altered = await make_model(world), await make_model(world, seed=8)
    for blob in await world.store.list_blobs(deleted["id"], "models/"):
        await world.store.delete(deleted["id"], blob.name)
    await world.store.write(altered["id"], f"{altered['result']['path']}/{MANIFEST}", b"{}")

    deleted_error = await refused_job(world, model=deleted["id"])
    changed_error = await refused_job(world, model=altered["id"])

    assert (deleted_error["status"], deleted_error["code"]) == (404, "model_not_found")
    assert "was deleted from the storage account" in deleted_error["message"]
    assert "is not what the job has committed" in changed_error["message"]


async def archive(world: World, job_id: str, **options: object) -> dict[str, Any]:
    """Return the answer, also when the request is refused."""
    path = f"{JOBS}/{job_id}/model/tier"
    body: dict[str, Any] = (
        await world.call("POST", path, json={"tier": "archive", **options})
    ).json()
    return body


async def test_an_archived_model_is_brought_back_first(world: World) -> None:
    job = await make_model(world)
    await archive(world, job["id"])
    moving_error = await refused_job(world, model=job["id"])
    while await make_moves(world).run_once():
        pass

    archived_error = await refused_job(world, model=job["fine_tuned_model"])

    assert [(e["status"], e["code"]) for e in (moving_error, archived_error)] == [
        (409, "archived")
    ] * 2
    assert f"rekindle tier {job['id']} hot" in moving_error["message"]
    assert f"rekindle tier {job['id']} hot" in archived_error["message"]


async def test_a_model_stays_online_while_a_job_that_reads_it_goes_on(world: World) -> None:
    job = await make_model(world)
    reader = await world.submit(model=job["id"])

    dry_run = await archive(world, job["id"], dry_run=True)
    refusal = await archive(world, job["id"])
    deletion = await world.call("DELETE", f"/v1/models/{job['fine_tuned_model']}")
    cooled = await world.call("POST", f"{JOBS}/{job['id']}/model/tier", json={"tier": "cool"})
    await world.call("POST", f"{JOBS}/{reader['id']}/cancel")
    await world.tick(3)
    freed = await archive(world, job["id"])

    assert f"{reader['id']} goes on and reads the final model" in refusal["error"]["message"]
    assert dry_run["error"] == refusal["error"]
    assert (deletion.status_code, deletion.json()["error"]["code"]) == (409, "conflict")
    assert reader["id"] in deletion.json()["error"]["message"]
    assert cooled.status_code == 200
    assert freed["id"].startswith("tier-")


@pytest.mark.parametrize("first", ["job", "archive"])
async def test_either_the_job_or_the_archive_is_first(world: World, first: str) -> None:
    """Both have seen that nothing is in their way before either has its turn."""
    job = await make_model(world)
    body = {"model": job["id"], "training_file": await world.upload(), "seed": 7}
    requests = {
        "job": lambda: world.call("POST", JOBS, json=body),
        "archive": lambda: world.call(
            "POST", f"{JOBS}/{job['id']}/model/tier", json={"tier": "archive"}
        ),
    }
    order = sorted(requests, key=lambda name: name != first)

    tasks = []
    async with world.engine.begin() as conn:
        await jobs.acquire_lock(conn, model_references.lock_key(job["id"], job["result"]["path"]))
        for number, name in enumerate(order, start=1):
            tasks.append(asyncio.create_task(requests[name]()))
            await waiting.until(lambda: _waiting(world), number.__le__)
    winner, loser = await asyncio.gather(*tasks)

    assert (winner.status_code, loser.status_code) == (200, 409), loser.text
    reason = "is on its way to the archive" if first == "archive" else "goes on and reads"
    assert reason in loser.json()["error"]["message"]


async def _waiting(world: World) -> int:
    async with world.engine.connect() as conn:
        query = text("select count(*) from pg_locks where locktype = 'advisory' and not granted")
        return int((await conn.execute(query)).scalar_one())


async def test_a_deleted_model_is_gone_with_its_bytes(world: World) -> None:
    job = await make_model(world)
    name = job["fine_tuned_model"]
    first, second = [(await world.call("DELETE", f"/v1/models/{name}")).json() for _ in range(2)]
    models = (await world.get("/v1/models"))["data"]
    files = await world.call("GET", f"{JOBS}/{job['id']}/model")
    error = await refused_job(world, model=name)

    assert first["deleted"]
    assert first["bytes_freed"] > 0
    assert second["bytes_freed"] == 0
    assert await world.store.list_blobs(job["id"], f"{job['result']['path']}/") == []
    assert name not in {model["id"] for model in models}
    assert files.json()["error"]["code"] == "model_not_found"
    assert (error["code"], error["param"]) == ("unsupported_model", "model")
