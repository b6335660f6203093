"""What is read in pieces: the metrics' series, logs by byte, the result file, and models."""

import base64
import csv
import io
from dataclasses import replace
from typing import Any, get_args

import pytest

from service.api.app import make_app
from service.api.schemas.costs import Figure
from service.db.jobs import step_metrics as series
from service.db.monitoring import event_pruning
from service.db.monitoring.event_pruning import PrunedTable
from service.operations.models import models
from service.storage.fake import MemoryStore
from service.storage.store import SMALL, Container, StorageError
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, metrics, say_all, train
from tests.world import MODEL, World, client, stage
from trainer.contract import NodePhase, log_path

JOBS = "/v1/fine_tuning/jobs"
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
    done = await world.job(job["id"])
    assert done["status"] == "succeeded", done
    return done


async def steps(world: World, job: Json, **params: object) -> tuple[list[int], bool]:
    answer = await world.call("GET", f"{JOBS}/{job['id']}/metrics", params=params)
    assert answer.status_code == 200, answer.text
    return [row["step"] for row in answer.json()["data"]], answer.json()["has_more"]


# --- metrics -------------------------------------------------------------------------------------


async def test_a_series_is_read_page_by_page(world: World, running: Running) -> None:
    job, _, _ = running

    first = await steps(world, job, limit=15)
    second = await steps(world, job, limit=15, after=15)
    last = await steps(world, job, limit=15, after=30)

    assert first == ([*range(1, 16)], True)
    assert second == ([*range(16, 31)], True)
    assert last == ([*range(31, 41)], False)


async def test_a_series_is_cut_to_a_range(world: World, running: Running) -> None:
    assert await steps(world, running[0], from_step=5, to_step=8) == ([5, 6, 7, 8], False)
    assert await steps(world, running[0], from_step=50) == ([], False)


async def test_a_thinned_series_shows_extremes_validation_and_the_end(
    world: World, running: Running
) -> None:
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


async def test_a_thinned_series_shows_a_loss_that_is_no_number(
    world: World, running: Running
) -> None:
    job, nodes, number = running
    await nodes[0].say(
        NodePhase.RUNNING, number, step=40, metrics=(metrics(12, loss=float("nan")),)
    )

    shown, _ = await steps(world, job, max_points=4)

    assert 12 in shown


async def test_a_figure_that_is_not_measured_leaves_the_end_alone(
    world: World, running: Running
) -> None:
    job, _, _ = running

    assert await steps(world, job, max_points=4, figure="reward") == ([40], False)


async def test_every_figure_of_a_row_may_be_asked_for() -> None:
    assert sorted(get_args(Figure)) == sorted(series.FIGURES)


# --- logs ----------------------------------------------------------------------------------------


async def test_a_log_is_followed_by_byte_offset(world: World, running: Running) -> None:
    job, nodes, _ = running
    path, blob = f"{JOBS}/{job['id']}/logs", log_path(nodes[0].attempt_id, 0)
    await world.store.write(job["id"], blob, b"one\ntwo\n")
    first = await world.call("GET", path)
    at = first.headers["x-next-offset"]
    nothing = await world.call("GET", path, params={"offset": at})
    await world.store.write(job["id"], blob, b"one\ntwo\nthree\n")

    more = await world.call("GET", path, params={"offset": at})

    assert (first.text, nothing.text, more.text) == ("one\ntwo\n", "", "three\n")
    assert (at, more.headers["x-log-offset"], more.headers["x-next-offset"]) == ("8", "8", "14")
    assert more.headers["x-log-attempt"] == nodes[0].attempt_id
    assert more.headers["x-log-complete"] == "false"


async def test_an_offset_beyond_the_log_waits_there(world: World, running: Running) -> None:
    path = f"{JOBS}/{running[0]['id']}/logs"

    answer = await world.call("GET", path, params={"offset": 50})

    assert (answer.text, answer.headers["x-next-offset"]) == ("", "50")


@pytest.mark.parametrize(
    ("text", "tail", "wanted"),
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
    world: World, running: Running, text: bytes, tail: int, wanted: bytes
) -> None:
    job, nodes, _ = running
    await world.store.write(job["id"], log_path(nodes[0].attempt_id, 0), text)

    answer = await world.call("GET", f"{JOBS}/{job['id']}/logs", params={"tail": tail})

    assert answer.content == wanted
    assert int(answer.headers["x-log-offset"]) == len(text) - len(wanted)


async def test_a_log_is_complete_once_its_machines_are_gone(world: World, running: Running) -> None:
    await finish(world, running)
    await world.tick(30)

    answer = await world.call("GET", f"{JOBS}/{running[0]['id']}/logs")

    assert answer.headers["x-log-complete"] == "true"


# --- the result file -----------------------------------------------------------------------------


async def test_a_job_that_succeeded_has_its_metrics_as_a_file(
    world: World, running: Running
) -> None:
    job, nodes, number = running
    lost = metrics(41, loss=float("nan"))
    await nodes[0].say(NodePhase.RUNNING, number, step=41, metrics=(lost,))
    before = await world.job(job["id"])
    done = await finish(world, running)
    (file_id,) = done["result_files"]

    file = (await world.call("GET", f"/v1/files/{file_id}")).json()
    coded = await world.call("GET", f"/v1/files/{file_id}/content")
    plain = await world.call("GET", f"/v1/files/{file_id}/content", headers={"accept": "text/csv"})

    rows = list(csv.DictReader(io.StringIO(plain.text)))
    assert before["result_files"] == []
    assert base64.b64decode(coded.content) == plain.content
    assert (file["purpose"], file["bytes"], file["filename"]) == (
        *("fine-tune-results", len(plain.content), "step_metrics.csv"),
    )
    assert list(rows[0]) == [
        *("step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy")
    ]
    assert [int(r["step"]) for r in rows] == [*range(1, 42)]
    assert (rows[1]["train_loss"], rows[1]["valid_loss"]) == ("98.0", "")
    assert rows[-1]["train_loss"] == ""


async def test_a_result_file_whose_metrics_are_deleted_is_gone_and_says_why(
    world: World, running: Running
) -> None:
    done = await finish(world, running)
    (file_id,) = done["result_files"]
    async with world.engine.begin() as conn:
        assert await event_pruning.delete_some(conn, PrunedTable.METRICS, done["id"])

    answer = await world.call("GET", f"/v1/files/{file_id}/content")

    assert answer.status_code == 410
    assert "REKINDLE_METRIC_DAYS" in answer.json()["error"]["message"]


async def test_a_result_file_may_be_deleted_like_any_other(world: World, running: Running) -> None:
    done = await finish(world, running)
    (file_id,) = done["result_files"]

    deleted = await world.call("DELETE", f"/v1/files/{file_id}")

    assert deleted.json() == {"id": file_id, "object": "file", "deleted": True}
    assert (await world.call("GET", f"/v1/files/{file_id}/content")).status_code == 404
    job = await world.job(running[0]["id"])
    assert job["result_files"] == []
    assert job["version"] > done["version"]


async def test_trained_tokens_count_every_step_once(world: World, running: Running) -> None:
    assert (await finish(world, running))["trained_tokens"] == 40 * 100


# --- models --------------------------------------------------------------------------------------


async def test_models_are_those_staged_and_those_made(world: World, running: Running) -> None:
    await stage(world.store, "Qwen/Qwen3-8B")
    before = (await world.call("GET", "/v1/models")).json()
    done = await finish(world, running)

    after = (await world.call("GET", "/v1/models")).json()
    one = await world.call("GET", f"/v1/models/{done['fine_tuned_model'].replace('/', '%2F')}")

    assert [m["id"] for m in before["data"]] == ["Qwen/Qwen3-8B", MODEL]
    assert [m["id"] for m in after["data"]] == [
        done["fine_tuned_model"],
        *(m["id"] for m in before["data"]),
    ]
    assert one.json() == after["data"][0]
    assert (one.json()["object"], one.json()["created"]) == ("model", done["finished_at"])


async def test_a_model_of_ones_own_is_found_while_the_store_is_away(
    world: World, running: Running
) -> None:
    done = await finish(world, running)
    name = done["fine_tuned_model"]
    parts = replace(world.parts, store=_Away())
    headers = {"authorization": f"Bearer {world.key}"}

    async with client(make_app(parts)) as http:
        mine = await http.get(f"/v1/models/{name}", headers=headers)
        based = await http.get(f"/v1/models/{MODEL}", headers=headers)

    assert (mine.status_code, mine.json()["id"]) == (200, name)
    assert (based.status_code, based.json()["error"]["code"]) == (503, "service_unavailable")


async def test_a_base_model_is_found_without_a_look_at_the_others(world: World) -> None:
    await stage(world.store, "Qwen/Qwen3-8B")
    store = _Noting(world.store)
    parts = replace(world.parts, store=store)
    headers = {"authorization": f"Bearer {world.key}"}

    async with client(make_app(parts)) as http:
        found = await http.get("/v1/models/Qwen/Qwen3-8B", headers=headers)
        other = await http.get("/v1/models/Qwen/Qwen3-9B", headers=headers)

    assert (found.json()["id"], found.json()["owned_by"]) == ("Qwen/Qwen3-8B", "base")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
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

    async def read(self, container: str, name: str, *, most: int = SMALL) -> tuple[bytes, str]:
        self.looked_at.append(container)
        return await super().read(container, name, most=most)


async def test_another_projects_models_are_not_shown(world: World, running: Running) -> None:
    await finish(world, running)
    headers = {"authorization": f"Bearer {await world.other_key()}"}

    listed = await world.http.get("/v1/models", headers=headers)

    assert [m["id"] for m in listed.json()["data"]] == [MODEL]


@pytest.mark.parametrize("head", [b"{", b"[]", b'{"name": "x"}', b"\xff"])
async def test_a_model_with_an_invalid_head_is_refused_and_not_listed(
    world: World, head: bytes
) -> None:
    where = models.container("broken/model")
    await world.store.create_container(where)
    await world.store.write(where, "HEAD", head)
    body = {"model": "broken/model", "training_file": await world.upload()}

    answer = await world.call("POST", JOBS, json=body)
    listed = await world.call("GET", "/v1/models")

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_model")
    assert "python -m rekindle.stage" in answer.json()["error"]["message"]
    assert [m["id"] for m in listed.json()["data"]] == [MODEL]


# --- blobs that somebody has deleted -------------------------------------------------------------


async def test_bytes_that_are_gone_from_storage_are_not_found(
    world: World, running: Running
) -> None:
    done = await finish(world, running)  # without a manifest: nothing was uploaded
    file_id = done["training_file"]
    await world.store.delete("files", file_id)

    file = await world.call("GET", f"/v1/files/{file_id}/content")
    model = await world.call("GET", f"{JOBS}/{done['id']}/model")

    assert (file.status_code, file.json()["error"]["code"]) == (404, "file_not_found")
    assert (model.status_code, model.json()["error"]["code"]) == (404, "model_not_found")
    assert "Restore it" in model.json()["error"]["message"]
