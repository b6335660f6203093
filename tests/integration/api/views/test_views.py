"""What is shown of a job beside OpenAI's object: attempts, cost, metrics, logs, the model."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.manifests import seal
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, metrics, say_all, train
from tests.world import JOBS, World
from trainer.contract import MANIFEST, NodePhase, log_path


@pytest.fixture
async def running(world: World) -> tuple[dict[str, Any], list[ScriptedNode], int]:
    """Return a job in its first generation, three steps done."""
    job = await world.submit()
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    measured = tuple(metrics(step, loss=3.0 - step) for step in (2, 3))
    await nodes[0].say(NodePhase.RUNNING, number, step=3, metrics=measured)
    return job, nodes, number


Running = tuple[dict[str, Any], list[ScriptedNode], int]


async def test_a_job_and_its_row_show_progress(world: World, running: Running) -> None:
    (listed_job,) = (await world.call("GET", JOBS)).json()["data"]
    job = await world.job(running[0]["id"])

    assert (job["status"], job["phase"]) == ("running", "training")
    assert job["progress"]["step"] == 3
    assert job["progress"]["seconds_per_step"] == 0.5
    assert job["estimated_finish"] > world.clock().timestamp()
    current = (await world.attempts_of(job["id"]))[0]["id"]
    assert job["attempts"] == {"count": 1, "current": current, "evictions": 0}
    assert job["hyperparameters"] == job["method"]["supervised"]["hyperparameters"]
    assert None not in job["hyperparameters"].values()
    assert {type(job[name]) for name in ("created_at", "started_at", "estimated_finish")} == {int}
    assert {name for name, value in listed_job.items() if job[name] != value} == {
        "cost",
        "progress",
    }
    assert listed_job["progress"] == {"step": 3, "total_steps": 60, "percent": 5.0}
    assert listed_job["cost"] == {
        name: job["cost"][name] for name in ("spent", "saved", "currency")
    }


async def test_an_attempt_and_the_bill_say_what_it_cost(world: World, running: Running) -> None:
    world.clock.advance(hours=1)

    (attempt,) = (await world.get(f"{JOBS}/{running[0]['id']}/attempts"))["data"]
    cost = await world.get(f"{JOBS}/{running[0]['id']}/cost")

    assert (attempt["object"], attempt["number"], attempt["state"], attempt["outcome"]) == (
        *("fine_tuning.job.attempt", 1, "running", None),
    )
    assert (attempt["region"], attempt["capacity"], attempt["nodes"]) == ("eastus", "spot", 2)
    assert (attempt["from_step"], attempt["last_step"], attempt["lost_steps"]) == (0, 3, 0)
    hours = Decimal(attempt["machine_hours"])
    assert hours > 2
    assert Decimal(attempt["cost"]) == pytest.approx(hours * Decimal("8.44"), abs=Decimal("0.001"))
    money = ("spent", "forecast_total", "planned_total", "on_demand_equivalent", "saved")
    assert all(isinstance(cost[name], str) for name in money)
    assert (cost["object"], cost["currency"], cost["final"]) == (
        *("fine_tuning.job.cost", "USD", False),
    )
    spent, saved = Decimal(cost["spent"]), Decimal(cost["saved"])
    assert 2 * Decimal("8.44") < spent < Decimal(cost["forecast_total"])
    assert spent + saved == Decimal(cost["on_demand_equivalent"])
    assert cost["saved_percent"] == pytest.approx(74.2, abs=0.1)


async def test_a_job_without_machines_costs_nothing(world: World) -> None:
    job = await world.submit()
    cost = await world.get(f"{JOBS}/{job['id']}/cost")

    assert (cost["spent"], cost["saved_percent"]) == ("0.0000", 0.0)
    assert Decimal(cost["forecast_total"]) > 0


async def test_a_checkpoint_shows_what_was_measured(world: World, running: Running) -> None:
    job, nodes, number = running
    nan_metrics = (metrics(4, loss=float("nan")), metrics(5, loss=float("inf")))
    assert (
        await nodes[0].say(NodePhase.RUNNING, number, step=5, metrics=nan_metrics)
    ).status_code == 200
    for step in (2, 4):
        await commit(world, job["id"], committed(step, number))
    await world.tick()

    rows = (await world.get(f"{JOBS}/{job['id']}/metrics"))["data"]
    unknown, stored = (await world.get(f"{JOBS}/{job['id']}/checkpoints"))["data"]

    assert [row["loss"] for row in rows] == [2.0, 1.0, 0.0, None, None]
    assert unknown["metrics"] == {"step": 4, "train_mean_token_accuracy": 0.0}
    assert stored["metrics"]["train_loss"] == 1.0
    assert "valid_loss" not in stored["metrics"]
    assert stored["fine_tuned_model_checkpoint"].endswith(f":{job['id']}:ckpt-step-2")
    assert (stored["kind"], stored["generation"]) == ("periodic", number)


async def test_an_event_without_data_has_no_such_member(world: World, running: Running) -> None:
    job, nodes, number = running
    await nodes[0].notice(number, step=3)

    events = (await world.get(f"{JOBS}/{job['id']}/events"))["data"]

    assert events[0]["level"] == "warn"
    assert events[0]["data"]["node"].startswith("node-")
    assert "data" not in events[-1]
    assert events[-1]["code"] == "job.created"
    assert {type(e["created_at"]) for e in events} == {int}


async def test_logs_are_text_of_a_rank_of_an_attempt(world: World, running: Running) -> None:
    job, nodes, _ = running
    path = f"{JOBS}/{job['id']}/logs"
    quiet = await world.call("GET", path)
    for rank, text in enumerate(("step 1\n", "quiet\n")):
        await world.store.write(job["id"], log_path(nodes[0].attempt_id, rank), text.encode())

    newest_log = await world.call("GET", path)
    log = await world.call("GET", path, params={"attempt": nodes[0].attempt_id, "rank": 1})
    numbered = await world.call("GET", path, params={"attempt": "1", "rank": 1})
    unknown = await world.call("GET", path, params={"attempt": "2"})

    assert (quiet.status_code, quiet.text) == (200, "")
    assert (newest_log.text, log.text, numbered.text) == ("step 1\n", "quiet\n", "quiet\n")
    assert newest_log.headers["content-type"].startswith("text/plain")
    assert unknown.json()["error"]["param"] == "attempt"


async def test_a_committed_model_is_there_file_by_file(world: World, running: Running) -> None:
    job, nodes, number = running
    before = await world.call("GET", f"{JOBS}/{job['id']}/model")
    entry = committed(10, number, "final")
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    digest = await seal(world.store, job["id"], entry.path, files)
    entry = replace(entry, manifest_sha256=digest)
    await commit(world, job["id"], entry)
    await say_all(nodes, NodePhase.FINISHED, number, step=10)
    await world.tick(2)

    model = await world.get(f"{JOBS}/{job['id']}/model")
    weights = await world.call("GET", f"{JOBS}/{job['id']}/model/model.safetensors")
    unknown = await world.call("GET", f"{JOBS}/{job['id']}/model/../{MANIFEST}")

    assert (before.status_code, before.json()["error"]["code"]) == (404, "model_not_found")
    assert {f["name"]: f["bytes"] for f in model["data"]} == {n: len(d) for n, d in files.items()}
    assert (model["path"], model["parameters_sha256"]) == (entry.path, "1" * 64)
    assert weights.content == b"weights"
    assert weights.headers["content-length"] == "7"
    assert unknown.status_code == 404
