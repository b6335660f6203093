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
    asked = {"training_file": await world.upload(), **body}
    answer = await world.call("POST", JOBS, json=asked)
    assert answer.is_error, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return {"status": answer.status_code} | error


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

    listed = (await world.call("GET", "/v1/models")).json()["data"]
    shown = (await world.call("GET", f"/v1/models/{second['fine_tuned_model']}")).json()

    assert second["model"] == first["fine_tuned_model"], "in full, however it was named"
    assert (
        second["fine_tuned_model"] == f"ft:{MODEL}:{second['organization_id']}:more:{second['id']}"
    )
    assert third["model"] == second["fine_tuned_model"]
    assert second["fine_tuned_model"] in [model["id"] for model in listed]
    assert shown["base_model"] == first["fine_tuned_model"]


async def test_a_model_with_a_head_goes_on_by_its_own_method(world: World) -> None:
    pairs = await world.upload(PAIRS)
    judge = await make_model(world, training_file=pairs, method=REWARD)

    again = await world.submit(model=judge["id"], training_file=pairs, method=REWARD)

    assert again["model"] == judge["fine_tuned_model"]


async def test_a_classifier_goes_on_with_its_own_labels_only(world: World) -> None:
    rows = await world.upload(labelled("complaint", "praise"))
    config = TINY | {"id2label": {"0": "complaint", "1": "praise"}}
    files = FILES | {"config.json": json.dumps(config).encode()}
    made = await make_model(world, files, training_file=rows, method=CLASSIFY)
    other = await world.upload(labelled("complaint", "question"))

    same = await world.submit(model=made["id"], training_file=rows, method=CLASSIFY)
    error = await refused_job(world, model=made["id"], training_file=other, method=CLASSIFY)

    assert same["model"] == made["fine_tuned_model"]
    assert "complaint, praise apart" in error["message"]
    assert "complaint, question" in error["message"]


async def test_models_with_missing_or_changed_files_are_refused(world: World) -> None:
    gone, changed = await make_model(world), await make_model(world, seed=8)
    for blob in await world.store.list_blobs(gone["id"], "models/"):
        await world.store.delete(gone["id"], blob.name)
    await world.store.write(changed["id"], f"{changed['result']['path']}/{MANIFEST}", b"{}")

    lost = await refused_job(world, model=gone["id"])
    other = await refused_job(world, model=changed["id"])

    assert (lost["status"], lost["code"]) == (404, "model_not_found")
    assert "was deleted from the storage account" in lost["message"]
    assert "is not what the job has committed" in other["message"]


async def archive(world: World, job_id: str, **wish: object) -> dict[str, Any]:
    """Return the answer, also when the request is refused."""
    path = f"{JOBS}/{job_id}/model/tier"
    answer: dict[str, Any] = (
        await world.call("POST", path, json={"tier": "archive", **wish})
    ).json()
    return answer


async def test_an_archived_model_is_brought_back_first(world: World) -> None:
    made = await make_model(world)
    await archive(world, made["id"])
    moving = await refused_job(world, model=made["id"])
    while await make_moves(world).run_once():
        pass

    archived = await refused_job(world, model=made["fine_tuned_model"])

    assert [(e["status"], e["code"]) for e in (moving, archived)] == [(409, "archived")] * 2
    assert f"rekindle tier {made['id']} hot" in moving["message"]
    assert f"rekindle tier {made['id']} hot" in archived["message"]


async def test_a_model_stays_online_while_a_job_that_reads_it_goes_on(world: World) -> None:
    made = await make_model(world)
    reader = await world.submit(model=made["id"])

    told_first = await archive(world, made["id"], dry_run=True)
    held = await archive(world, made["id"])
    kept = await world.call("DELETE", f"/v1/models/{made['fine_tuned_model']}")
    cooled = await world.call("POST", f"{JOBS}/{made['id']}/model/tier", json={"tier": "cool"})
    await world.call("POST", f"{JOBS}/{reader['id']}/cancel")
    await world.tick(3)
    freed = await archive(world, made["id"])

    assert f"{reader['id']} goes on and reads the final model" in held["error"]["message"]
    assert told_first["error"] == held["error"]
    assert (kept.status_code, kept.json()["error"]["code"]) == (409, "conflict")
    assert reader["id"] in kept.json()["error"]["message"]
    assert cooled.status_code == 200
    assert freed["id"].startswith("tier-")


@pytest.mark.parametrize("first", ["job", "archive"])
async def test_either_the_job_or_the_archive_is_first(world: World, first: str) -> None:
    """Both have seen that nothing is in their way before either has its turn."""
    made = await make_model(world)
    body = {"model": made["id"], "training_file": await world.upload(), "seed": 7}
    asked = {
        "job": lambda: world.call("POST", JOBS, json=body),
        "archive": lambda: world.call(
            "POST", f"{JOBS}/{made['id']}/model/tier", json={"tier": "archive"}
        ),
    }
    order = sorted(asked, key=lambda what: what != first)

    under_way = []
    async with world.engine.begin() as conn:
        await jobs.take_turn(conn, model_references.lock_key(made["id"], made["result"]["path"]))
        for number, what in enumerate(order, start=1):
            under_way.append(asyncio.create_task(asked[what]()))
            await waiting.until(lambda: _waiting(world), number.__le__)
    won, lost = await asyncio.gather(*under_way)

    assert (won.status_code, lost.status_code) == (200, 409), lost.text
    says = "is on its way to the archive" if first == "archive" else "goes on and reads"
    assert says in lost.json()["error"]["message"]


async def _waiting(world: World) -> int:
    async with world.engine.connect() as conn:
        query = text("select count(*) from pg_locks where locktype = 'advisory' and not granted")
        return int((await conn.execute(query)).scalar_one())


async def test_a_deleted_model_is_gone_with_its_bytes(world: World) -> None:
    made = await make_model(world)
    name = made["fine_tuned_model"]
    gone, again = [(await world.call("DELETE", f"/v1/models/{name}")).json() for _ in range(2)]
    listed = (await world.get("/v1/models"))["data"]
    files = await world.call("GET", f"{JOBS}/{made['id']}/model")
    refused = await refused_job(world, model=name)

    assert gone["deleted"]
    assert gone["bytes_freed"] > 0
    assert again["bytes_freed"] == 0
    assert await world.store.list_blobs(made["id"], f"{made['result']['path']}/") == []
    assert name not in {model["id"] for model in listed}
    assert files.json()["error"]["code"] == "model_not_found"
    assert (refused["code"], refused["param"]) == ("unsupported_model", "model")
