"""DELETE /v1/models/{id}: the bytes are freed, and nobody begins with the model any more."""

from contextlib import suppress
from typing import Any

from service.operations.models import model_deletion
from service.reconciler.sweeps.retention import CheckpointSweep
from service.storage.store import StorageError
from tests.integration.api.jobs.test_preferences import JOBS
from tests.integration.finished_jobs import make_model
from tests.world import World


async def delete_model(world: World, name: str) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer."""
    answer = await world.call("DELETE", f"/v1/models/{name}")
    return answer.status_code, answer.json()


async def list_left(world: World, job: dict[str, Any]) -> list[str]:
    """Names of the model's blobs that are still there."""
    return [b.name for b in await world.store.list_blobs(job["id"], f"{job['result']['path']}/")]


async def test_a_deleted_model_is_gone_with_its_bytes(world: World) -> None:
    made = await make_model(world)
    name = made["fine_tuned_model"]
    status, body = await delete_model(world, name)
    again = await delete_model(world, name)
    listed = (await world.call("GET", "/v1/models")).json()["data"]
    files = await world.call("GET", f"{JOBS}/{made['id']}/model")
    asked = {"model": name, "training_file": await world.upload()}
    refused = (await world.call("POST", JOBS, json=asked)).json()["error"]

    assert (status, body["deleted"]) == (200, True)
    assert body["bytes_freed"] > 0
    assert again[1]["bytes_freed"] == 0
    assert await list_left(world, made) == []
    assert name not in {model["id"] for model in listed}
    assert files.json()["error"]["code"] == "model_not_found"
    assert (refused["code"], refused["param"]) == ("unsupported_model", "model")


async def test_what_a_killed_process_has_left_is_swept(world: World) -> None:
    made = await make_model(world)

    class Fails(type(world.store)):  # type: ignore[misc]  # the world's store
        async def delete(self, *_: str) -> None:
            raise StorageError("gone away")

    broken = Fails()
    broken.__dict__.update(vars(world.store))
    project, name = made["organization_id"], made["fine_tuned_model"]
    with suppress(StorageError):
        await model_deletion.delete(world.engine, broken, project, name, world.clock())
    assert await list_left(world, made) != []
    world.clock.advance(days=3)
    sweep = CheckpointSweep(engine=world.engine, store=world.store, now=world.clock)
    await sweep.run_once()

    assert await list_left(world, made) == []
