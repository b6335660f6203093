"""Checkpoints as models: in the list, as what another job begins with, and deleted."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import update

from service.db.jobs import jobs
from service.db.schema.tables import checkpoints
from service.operations.models import model_deletion
from service.reconciler.sweeps.retention import CheckpointSweep
from service.storage.store import StorageError
from tests.integration.api.jobs.test_preferences import read_run_spec
from tests.integration.api.models.test_lineage import refused_job
from tests.integration.finished_jobs import READ, make_model
from tests.integration.stored_jobs import make_moves
from tests.integration.sweeps.checkpointed_jobs import (
    FILES,
    cancel_job,
    cancel_with_checkpoints,
    seal_checkpoint,
    start_with_checkpoints,
)
from tests.world import JOBS, MODEL, World
from trainer.contract import (
    CONVERTED_BASE,
    HEAD,
    MANIFEST,
    RUN_SPEC,
    ConvertedBase,
    FileEntry,
    Head,
    InputFile,
    converted_base_path,
)


async def checkpoint_names(world: World, job_id: str) -> list[str]:
    """Return what the job's list of checkpoints calls them, newest first."""
    rows = (await world.call("GET", f"{JOBS}/{job_id}/checkpoints")).json()["data"]
    return [checkpoint["fine_tuned_model_checkpoint"] for checkpoint in rows]


async def list_models(world: World) -> dict[str, dict[str, Any]]:
    """GET /v1/models by name."""
    return {m["id"]: m for m in (await world.call("GET", "/v1/models")).json()["data"]}


async def error_of(world: World, method: str, name: str) -> dict[str, Any]:
    """Return the status and the error of a refused request."""
    response = await world.call(method, f"/v1/models/{name}")
    assert response.is_error, response.text
    return {"status": response.status_code, **response.json()["error"]}


async def test_a_job_begins_with_a_checkpoint_of_one_that_was_cancelled(world: World) -> None:
    first = await cancel_with_checkpoints(world, 2, 3, suffix="chatty")
    newest, older = await checkpoint_names(world, first["id"])

    model = (await world.call("GET", f"/v1/models/{older}")).json()
    models = await list_models(world)
    second = await world.submit(model=older, suffix="more")
    continued = await world.submit(model=f"{first['id']}:ckpt-step-3", seed=8)
    base = (await read_run_spec(world, second["id"])).base_model
    before = (await world.store.read(first["id"], RUN_SPEC))[0].decode()
    async with world.engine.connect() as conn:
        row = await jobs.find(conn, second["id"])

    assert older == f"ft:{MODEL}:{first['organization_id']}:chatty:{first['id']}:ckpt-step-2"
    assert models[older] == model
    assert (model["owned_by"], model["job"], model["step"], model["base_model"]) == (
        first["organization_id"],
        first["id"],
        2,
        MODEL,
    )
    assert (second["model"], continued["model"]) == (older, newest), "in full, however it was named"
    assert base.name == older
    assert base.checkpoint is not None
    folder = base.checkpoint.files[0].path.removesuffix(f"/{MANIFEST}")
    assert [f.path for f in base.checkpoint.files] == [
        f"{folder}/{name}" for name in (MANIFEST, *FILES)
    ]
    assert base.revision == base.checkpoint.files[0].sha256
    assert [f.to_plain() for f in base.files] == json.loads(before)["base_model"]["files"]
    assert row is not None
    entries = (*base.files, *base.checkpoint.files, base.checkpoint.run_spec)
    granted = {f.path for f in entries} | {f"files/{second['training_file']}"}
    assert set(row.inputs) == granted, "nodes may read what it is converted with"


async def test_only_milestones_of_a_running_job_can_be_used_as_models(world: World) -> None:
    job_id, _ = await start_with_checkpoints(world, 2, 4)
    milestone = f"{job_id}:ckpt-step-4"

    models = await list_models(world)
    child = await world.submit(model=milestone, seed=8)

    assert [m["step"] for m in models.values() if m.get("job") == job_id] == [4]
    assert child["model"].endswith(milestone)


async def test_a_refusal_of_another_projects_checkpoint_does_not_show_its_job(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2)
    name = (await checkpoint_names(world, job["id"]))[0]
    other_project = replace(world, key=await world.other_key())

    message = (await error_of(other_project, "GET", name))["message"]

    assert job["id"] not in message.replace(name, "")


async def test_what_nodes_have_forged_is_refused(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2, 3, 4)
    data, _ = await world.store.read(job["id"], HEAD)
    head = Head.from_json(data)
    renamed, outside_entry, unnamed_entry = head.checkpoints
    foreign_entry = FileEntry(name="../../../files/x", size=1, etag="0x1", crc64nvme="0" * 16)
    await world.store.write(job["id"], f"{renamed.path}/{MANIFEST}", b"{}")
    digest = await seal_checkpoint(world, job["id"], outside_entry.path, foreign_entry)
    async with world.engine.begin() as conn:  # else it is not what was committed, either
        own_path = update(checkpoints).where(checkpoints.c.path == outside_entry.path)
        await conn.execute(own_path.values(manifest_sha256=digest))
    entries = (renamed, replace(outside_entry, manifest_sha256=digest))
    head_json = replace(head, checkpoints=entries).to_json().encode()
    await world.store.write(job["id"], HEAD, head_json)

    errors = [
        (await refused_job(world, model=f"{job['id']}:ckpt-step-{entry.step}"))["message"]
        for entry in (renamed, outside_entry, unnamed_entry)
    ]

    assert "is not what the job has committed" in errors[0]
    assert "files[0].name" in errors[1]
    assert "does not name it any more" in errors[2]


async def test_a_checkpoint_of_another_hash_than_at_first_is_refused(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2, 3)
    data, etag = await world.store.read(job["id"], HEAD)
    head = Head.from_json(data)
    digest = await seal_checkpoint(world, job["id"], head.checkpoints[0].path)
    entries = (replace(head.checkpoints[0], manifest_sha256=digest), head.checkpoints[1])
    head_json = replace(head, checkpoints=entries).to_json().encode()
    await world.store.write(job["id"], HEAD, head_json, if_match=etag)
    name = f"{job['id']}:ckpt-step-2"

    error = await refused_job(world, model=name)

    assert (error["code"], error["param"]) == ("unsupported_model", "model")
    assert "is not what the job has committed" in error["message"]


async def test_a_deleted_checkpoint_is_gone_with_its_bytes(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2, 3)
    _, name = await checkpoint_names(world, job["id"])

    deleted = (await world.call("DELETE", f"/v1/models/{name}")).json()
    second = await error_of(world, "DELETE", name)
    head, _ = await world.store.read(job["id"], HEAD)
    blobs = await world.store.list_blobs(job["id"], "checkpoints/")

    assert (deleted["id"], deleted["deleted"]) == (name, True)
    assert deleted["bytes_freed"] > 200 * 1024
    assert (second["status"], second["code"]) == (404, "model_not_found")
    assert [c.step for c in Head.from_json(head).checkpoints] == [3]
    assert {"step-00000002" in blob.name for blob in blobs} == {False}
    assert name not in await list_models(world)
    assert name not in await checkpoint_names(world, job["id"])
    assert "no checkpoint of step 2" in (await refused_job(world, model=name))["message"]


async def test_a_deletion_that_was_killed_is_done_later(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2, 3)
    newer, older = await checkpoint_names(world, job["id"])
    final = await make_model(world)
    project, model = job["organization_id"], final["fine_tuned_model"]

    class Fails(type(world.store)):  # type: ignore[misc]  # the world's store
        async def delete(self, *_: str) -> None:
            raise StorageError("gone away")

    class CannotWrite(Fails):
        async def write(self, *_: object, **__: object) -> str:
            raise StorageError("gone away")

    for store, name in ((Fails(), newer), (CannotWrite(), older), (Fails(), model)):
        store.__dict__.update(vars(world.store))
        with suppress(StorageError):
            await model_deletion.delete(world.engine, store, project, name, world.clock())
    assert not {newer, older, model} & set(await list_models(world))
    assert await world.store.list_blobs(final["id"], "models/") != []
    second = await world.call("DELETE", f"/v1/models/{older}")
    world.clock.advance(days=3)
    await CheckpointSweep(engine=world.engine, store=world.store, now=world.clock).run_once()

    assert second.json()["bytes_freed"] > 0
    assert await world.store.list_blobs(final["id"], "models/") == []
    assert await world.store.list_blobs(job["id"], "checkpoints/") == []


async def test_a_checkpoint_stays_online_while_a_job_reads_it(world: World) -> None:
    job = await cancel_with_checkpoints(world, 2)
    name = (await checkpoint_names(world, job["id"]))[0]
    checkpoint = (await world.call("GET", f"{JOBS}/{job['id']}/checkpoints")).json()["data"][0]
    path = f"{JOBS}/{job['id']}/checkpoints/{checkpoint['id']}/tier"
    reader = await world.submit(model=name)

    move = (await world.call("POST", path, json={"tier": "archive"})).json()
    error = await error_of(world, "DELETE", name)
    await cancel_job(world, reader["id"])
    freed = await world.call("POST", path, json={"tier": "archive"})
    moving_error = await refused_job(world, model=name)
    while await make_moves(world).run_once():
        pass
    archived = await refused_job(world, model=name)

    assert f"{reader['id']} goes on and reads the checkpoint of step 2" in move["error"]["message"]
    assert (error["status"], reader["id"] in error["message"]) == (409, True)
    assert freed.status_code == 200, freed.text
    assert [(e["status"], e["code"]) for e in (moving_error, archived)] == [(409, "archived")] * 2
    assert f"rekindle tier {job['id']} hot --checkpoint {checkpoint['id']}" in archived["message"]


async def test_a_checkpoint_needs_the_model_that_its_job_began_with(world: World) -> None:
    root = await make_model(world)
    middle = await cancel_with_checkpoints(world, 2, model=root["id"])
    name = (await checkpoint_names(world, middle["id"]))[0]
    reader = await world.submit(model=name)
    base = (await read_run_spec(world, reader["id"])).base_model

    error = await error_of(world, "DELETE", root["fine_tuned_model"])
    await cancel_job(world, reader["id"])
    deleted = await world.call("DELETE", f"/v1/models/{root['fine_tuned_model']}")

    assert [f.name for f in base.files] == READ
    assert {f.path.split("/")[0] for f in base.files} == {root["id"]}
    assert (error["status"], reader["id"] in error["message"]) == (409, True)
    assert deleted.status_code == 200, deleted.text
    assert name not in await list_models(world)
    assert (
        f"The model of job {root['id']} was deleted"
        in (await refused_job(world, model=name))["message"]
    )


async def test_what_was_made_of_a_checkpoint_is_the_base_of_the_next_one(world: World) -> None:
    first = await cancel_with_checkpoints(world, 2)
    second = await cancel_with_checkpoints(world, 2, model=f"{first['id']}:ckpt-step-2")
    config = json.dumps({"model_type": "llama"}).encode()
    original = (await read_base_model(world, first["id"]))["files"]
    data = {f["path"].rpartition("/")[2]: await _blob(world, f["path"]) for f in original}
    folder = f"{second['id']}/{converted_base_path(1)}"
    input_files = [InputFile(path=f"{folder}/{n}", size=len(d), sha256="") for n, d in data.items()]
    for file in input_files:
        await world.store.write(second["id"], file.path.split("/", 1)[1], data[file.name])
    name = f"{second['id']}:ckpt-step-2"

    error = await refused_job(world, model=name)
    await _publish(world, second["id"], input_files)
    third = await world.submit(model=name)
    base = (await read_run_spec(world, third["id"])).base_model
    foreign_file = InputFile(path=f"{first['id']}/x/config.json", size=len(config), sha256="")
    await _publish(world, second["id"], [foreign_file])
    forged_error = await refused_job(world, model=name, seed=9)

    assert "from the storage account" in error["message"]
    assert list(base.files) == input_files
    assert base.checkpoint is not None
    assert base.checkpoint.run_spec.path == f"{second['id']}/{RUN_SPEC}"
    assert "names files outside its folder" in forged_error["message"]


async def read_base_model(world: World, job_id: str) -> dict[str, Any]:
    """Return the base model in a job's run spec."""
    data, _ = await world.store.read(job_id, RUN_SPEC)
    base: dict[str, Any] = json.loads(data)["base_model"]
    return base


async def _blob(world: World, path: str) -> bytes:
    container, name = path.split("/", 1)
    return (await world.store.read(container, name))[0]


async def _publish(world: World, job_id: str, files: list[InputFile]) -> None:
    data = ConvertedBase(files=tuple(files)).to_json().encode()
    await world.store.write(job_id, CONVERTED_BASE, data)
