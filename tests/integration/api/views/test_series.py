"""What is read in pieces: the metrics' series, logs by byte, the result file, and models."""

import base64
import csv
import io
from dataclasses import replace
from typing import Any, get_args

import pytest

from service.api.schemas.costs import Figure
from service.db.jobs import step_metrics as series
from service.db.monitoring import event_pruning
from service.db.monitoring.event_pruning import PrunedTable
from service.operations.models import models
from service.storage.fake import MemoryStore
from service.storage.store import SMALL_BYTES, Container, StorageError
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, metrics, say_all, train
from tests.world import JOBS, MODEL, World, stage
from trainer.contract import NodePhase, log_path

Json = dict[str, Any]
Running = tuple[Json, list[ScriptedNode], int]


@pytest.fixture
async def running(world: World) -> Running:
    """Return a job that has measured 40 steps, every tenth with a validation loss."""
    job = await world.submit(suffix="mine")
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    rows = [metrics(step, loss=100.0 - step) for step in range(2, 41)]
    await nodes[0].say(NodePhase.RUNNING, number, step=40, metrics=tuple(rows))
    return job, nodes, number


async def finish(world: World, running: Running) -> Json:
    job, nodes, number = running
    await commit(world, job["id"], committed(60, number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=60)
    await world.tick(2)
    finished_job = await world.job(job["id"])
    assert finished_job["status"] == "succeeded", finished_job
    return finished_job


async def steps(world: World, job: Json, **params: object) -> tuple[list[int], bool]:
    page = await world.get(f"{JOBS}/{job['id']}/metrics", **params)
    return [row["step"] for row in page["data"]], page["has_more"]


async def test_a_series_is_read_page_by_page_or_cut_to_a_range(
    world: World, running: Running
) -> None:
    job, _, _ = running

    assert await steps(world, job, limit=15) == ([*range(1, 16)], True)
    assert await steps(world, job, limit=15, after=15) == ([*range(16, 31)], True)
    assert await steps(world, job, limit=15, after=30) == ([*range(31, 41)], False)
    assert await steps(world, job, from_step=5, to_step=8) == ([5, 6, 7, 8], False)
    assert await steps(world, job, from_step=50) == ([], False)


async def test_a_thinned_series_keeps_what_matters(world: World, running: Running) -> None:
    job, nodes, number = running
    validated, spike = metrics(33), metrics(20, loss=7.0)
    validated = replace(validated, valid_loss=1.5)
    spike = replace(spike, grad_norm=900.0)
    await nodes[0].say(NodePhase.RUNNING, number, step=40, metrics=(validated, spike))

    assert await steps(world, job, max_points=4) == ([1, 2, 33, 40], False)
    assert await steps(world, job, max_points=4, from_step=3, to_step=9) == ([3, 9], False)
    assert await steps(world, job, max_points=7) == ([1, 2, 21, 33, 40], False)
    assert await steps(world, job, max_points=4, figure="grad_norm") == ([1, 20, 33, 40], False)
    assert await steps(world, job, max_points=1) == ([40], False)
    assert (await steps(world, job, max_points=100))[0] == [*range(1, 41)]
    assert await steps(world, job, max_points=4, figure="reward") == ([40], False), "unmeasured"
    nan = metrics(12, loss=float("nan"))
    await nodes[0].say(NodePhase.RUNNING, number, step=40, metrics=(nan,))
    assert 12 in (await steps(world, job, max_points=4))[0]


async def test_every_figure_of_a_row_may_be_asked_for() -> None:
    assert sorted(get_args(Figure)) == sorted(series.FIGURES)


async def test_a_log_is_followed_by_byte_offset(world: World, running: Running) -> None:
    job, nodes, _ = running
    path, blob = f"{JOBS}/{job['id']}/logs", log_path(nodes[0].attempt_id, 0)
    await world.store.write(job["id"], blob, b"one\ntwo\n")
    first = await world.call("GET", path)
    at = first.headers["x-next-offset"]
    empty = await world.call("GET", path, params={"offset": at})
    await world.store.write(job["id"], blob, b"one\ntwo\nthree\n")

    second = await world.call("GET", path, params={"offset": at})
    past_end = await world.call("GET", path, params={"offset": 50})

    assert (first.text, empty.text, second.text) == ("one\ntwo\n", "", "three\n")
    assert (at, second.headers["x-log-offset"], second.headers["x-next-offset"]) == ("8", "8", "14")
    assert second.headers["x-log-attempt"] == nodes[0].attempt_id
    assert second.headers["x-log-complete"] == "false"
    assert (past_end.text, past_end.headers["x-next-offset"]) == ("", "50"), "it waits there"


@pytest.mark.parametrize(
    ("text", "tail", "expected"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"x" * 5000 + b"\n" + b"y" * 5000 + b"\n", 1, b"y" * 5000 + b"\n"),
        (b"".join(b"%d\n" % n for n in range(9999)), 3, b"9996\n9997\n9998\n"),
    ],
    ids=["empty", "lines", "half a line", "few", "long lines", "many"],
)
async def test_the_tail_of_a_log_is_its_last_lines(
    world: World, running: Running, text: bytes, tail: int, expected: bytes
) -> None:
    job, nodes, _ = running
    await world.store.write(job["id"], log_path(nodes[0].attempt_id, 0), text)

    response = await world.call("GET", f"{JOBS}/{job['id']}/logs", params={"tail": tail})

    assert response.content == expected
    assert int(response.headers["x-log-offset"]) == len(text) - len(expected)


async def test_a_log_is_complete_once_its_machines_are_gone(world: World, running: Running) -> None:
    await finish(world, running)
    await world.tick(30)

    response = await world.call("GET", f"{JOBS}/{running[0]['id']}/logs")

    assert response.headers["x-log-complete"] == "true"


async def test_a_job_that_succeeded_has_a_result_file(world: World, running: Running) -> None:
    job, nodes, number = running
    nan_metrics = metrics(41, loss=float("nan"))
    await nodes[0].say(NodePhase.RUNNING, number, step=41, metrics=(nan_metrics,))
    before = await world.job(job["id"])
    finished_job = await finish(world, running)
    (file_id,) = finished_job["result_files"]

    file = (await world.call("GET", f"/v1/files/{file_id}")).json()
    coded = await world.call("GET", f"/v1/files/{file_id}/content")
    csv_response = await world.call(
        "GET", f"/v1/files/{file_id}/content", headers={"accept": "text/csv"}
    )

    rows = list(csv.DictReader(io.StringIO(csv_response.text)))
    assert before["result_files"] == []
    assert base64.b64decode(coded.content) == csv_response.content
    assert (file["purpose"], file["bytes"], file["filename"]) == (
        *("fine-tune-results", len(csv_response.content), "step_metrics.csv"),
    )
    assert list(rows[0]) == [
        *("step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy")
    ]
    assert [int(r["step"]) for r in rows] == [*range(1, 42)]
    assert (rows[1]["train_loss"], rows[1]["valid_loss"]) == ("98.0", "")
    assert rows[-1]["train_loss"] == ""
    assert finished_job["trained_tokens"] == 41 * 100


async def test_a_result_file_goes_with_its_metrics(world: World, running: Running) -> None:
    finished_job = await finish(world, running)
    (file_id,) = finished_job["result_files"]
    async with world.engine.begin() as conn:
        assert await event_pruning.delete_some(conn, PrunedTable.METRICS, finished_job["id"])

    pruned = await world.call("GET", f"/v1/files/{file_id}/content")
    deleted = await world.call("DELETE", f"/v1/files/{file_id}")

    assert pruned.status_code == 410
    assert "REKINDLE_METRIC_DAYS" in pruned.json()["error"]["message"]
    assert deleted.json() == {"id": file_id, "object": "file", "deleted": True}
    assert (await world.call("GET", f"/v1/files/{file_id}/content")).status_code == 404
    job = await world.job(running[0]["id"])
    assert job["result_files"] == []
    assert job["version"] > finished_job["version"]


async def test_models_are_those_staged_and_those_made(world: World, running: Running) -> None:
    await stage(world.store, "Qwen/Qwen3-8B")
    before = (await world.call("GET", "/v1/models")).json()
    finished_job = await finish(world, running)

    after = (await world.call("GET", "/v1/models")).json()
    encoded = await world.call(
        "GET", f"/v1/models/{finished_job['fine_tuned_model'].replace('/', '%2F')}"
    )

    assert [m["id"] for m in before["data"]] == ["Qwen/Qwen3-8B", MODEL]
    assert [m["id"] for m in after["data"]] == [
        finished_job["fine_tuned_model"],
        *(m["id"] for m in before["data"]),
    ]
    assert encoded.json() == after["data"][0]
    assert (encoded.json()["object"], encoded.json()["created"]) == (
        "model",
        finished_job["finished_at"],
    )


async def test_a_model_is_found_while_the_store_is_away(world: World, running: Running) -> None:
    finished_job = await finish(world, running)
    name = finished_job["fine_tuned_model"]
    async with world.beside(store=_Away()) as replica:
        model = await replica.call("GET", f"/v1/models/{name}")
        based = await replica.call("GET", f"/v1/models/{MODEL}")

    assert (model.status_code, model.json()["id"]) == (200, name)
    assert (based.status_code, based.json()["error"]["code"]) == (503, "service_unavailable")


async def test_a_base_model_is_found_without_a_look_at_the_others(world: World) -> None:
    await stage(world.store, "Qwen/Qwen3-8B")
    store = _Noting(world.store)
    async with world.beside(store=store) as noting:
        model = await noting.call("GET", "/v1/models/Qwen/Qwen3-8B")
        second = await noting.call("GET", "/v1/models/Qwen/Qwen3-9B")

    assert (model.json()["id"], model.json()["owned_by"]) == ("Qwen/Qwen3-8B", "base")
    assert (second.status_code, second.json()["error"]["code"]) == (404, "model_not_found")
    assert store.looked_at == [models.container("Qwen/Qwen3-8B")]


class _Away(MemoryStore):
    """A store that does not answer."""

    async def list_containers(self, prefix: str) -> list[Container]:
        raise StorageError(f"no route to {prefix}")


class _Noting(MemoryStore):
    """A store that keeps what is read of it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(**vars(store))
        self.looked_at: list[str] = []

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        self.looked_at.append(container)
        return await super().read(container, name, most=most)


@pytest.mark.parametrize("head", [b"{", b"[]", b'{"name": "x"}', b"\xff"])
async def test_a_model_with_an_invalid_head_is_refused(world: World, head: bytes) -> None:
    container = models.container("broken/model")
    await world.store.create_container(container)
    await world.store.write(container, "HEAD", head)
    body = {"model": "broken/model", "training_file": await world.upload()}

    response = await world.call("POST", JOBS, json=body)
    model_list = await world.call("GET", "/v1/models")

    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_model")
    assert "python -m rekindle.stage" in response.json()["error"]["message"]
    assert [m["id"] for m in model_list.json()["data"]] == [MODEL]


async def test_bytes_that_are_gone_are_not_found(world: World, running: Running) -> None:
    finished_job = await finish(world, running)  # without a manifest: nothing was uploaded
    file_id = finished_job["training_file"]
    await world.store.delete("files", file_id)

    file = await world.call("GET", f"/v1/files/{file_id}/content")
    model = await world.call("GET", f"{JOBS}/{finished_job['id']}/model")

    assert (file.status_code, file.json()["error"]["code"]) == (404, "file_not_found")
    assert (model.status_code, model.json()["error"]["code"]) == (404, "model_not_found")
    assert "Restore it" in model.json()["error"]["message"]
