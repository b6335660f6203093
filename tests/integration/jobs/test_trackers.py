"""Trackers get each step once, registries each model, and no job waits for them."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from service.api.app import make_app
from service.cloud.fake import FakeRegistry
from service.cloud.provider import CloudError
from service.db.jobs import step_metrics
from service.db.trackers import model_registry
from service.domain.states import JobState
from service.reconciler.jobs.model_registry import TIMEOUT as REGISTRY_TIMEOUT
from service.reconciler.jobs.model_registry import ModelRegistrations
from service.reconciler.jobs.trackers import CLAIM_DURATION, TIMEOUT, TrackerRuns
from service.trackers.fake import FakeTracker
from service.trackers.mlflow import Mlflow
from service.trackers.tracker import TrackerError
from tests.integration.api.jobs.test_preferences import JOBS
from tests.integration.finished_jobs import finish_job, make_model
from tests.mlflow_server import MlflowServer
from tests.nodes.scripted_node import metrics as measured
from tests.world import World, client

WANDB = {"type": "wandb", "wandb": {"project": "p", "name": None, "entity": None, "tags": ["a"]}}
MLFLOW = {"type": "mlflow", "mlflow": {"experiment": "e", "run_name": None, "tags": {}}}
BOARD = {"type": "tensorboard"}


class Killed(BaseException):
    """The process ends here."""


def with_trackers(world: World, *kinds: str) -> World:
    """Return the same world, whose deployment has these trackers."""
    world.http = client(make_app(replace(world.parts, trackers=frozenset(kinds))))
    return world


def runs(world: World, tracker: Any, kind: str = "mlflow") -> TrackerRuns:  # noqa: ANN401 - any
    return TrackerRuns(engine=world.engine, kind=kind, tracker=tracker, now=world.clock)


async def a_job(world: World, *integrations: dict[str, Any]) -> dict[str, Any]:
    kinds = [integration["type"] for integration in integrations]
    return await with_trackers(world, *kinds).submit(integrations=list(integrations))


async def measure(world: World, job: dict[str, Any], steps: Iterable[int], gen: int = 1) -> None:
    """Have the service know these steps."""
    async with world.engine.begin() as conn:
        await step_metrics.add(conn, job["id"], gen, [measured(step) for step in steps])


async def serve_later(world: World, tracker: Any, seconds: float = 60.0) -> list[int]:  # noqa: ANN401
    """Let time pass and serve what is due; the steps that the tracker has then."""
    world.clock.advance(seconds=seconds)
    await runs(world, tracker).run_once()
    return [p.step for points in tracker.points.values() for p in points]


async def tracker_events(world: World, job: dict[str, Any]) -> list[str]:
    return [code for code in await world.event_codes(job["id"]) if code.startswith("tracker.")]


async def test_a_job_shows_its_integrations_as_they_were_sent(world: World) -> None:
    job = await a_job(world, WANDB, MLFLOW, BOARD)

    assert job["integrations"] == [WANDB, MLFLOW, BOARD]
    assert (await world.job(job["id"]))["integrations"] == [WANDB, MLFLOW, BOARD]


async def test_the_mlflow_of_a_workspace_gets_every_job_in_one_experiment_or_its_own(
    world: World,
) -> None:
    parts = replace(world.parts, trackers=frozenset({"mlflow"}), mlflow_experiment="rekindle")
    world.http = client(make_app(parts))
    default_job, named_job = await world.submit(), await world.submit(integrations=[MLFLOW], seed=2)
    server = MlflowServer()
    for job in (default_job, named_job):
        await measure(world, job, range(1, 4))
    world.clock.advance(seconds=1)
    await runs(world, Mlflow.at("http://mlflow", "", server)).run_once()

    assert [integration["mlflow"]["experiment"] for integration in default_job["integrations"]] == [
        "rekindle"
    ]
    assert named_job["integrations"] == [MLFLOW]
    assert set(server.experiments) == {"rekindle", "e"}
    assert [len(logged) > 0 for logged in server.logged.values()] == [True, True]


@pytest.mark.parametrize(
    ("integration", "variable"),
    [(WANDB, "REKINDLE_WANDB_API_KEY"), (MLFLOW, "REKINDLE_MLFLOW_TRACKING_URI")],
)
async def test_a_tracker_that_the_deployment_lacks_is_refused_with_what_to_set(
    world: World, integration: dict[str, Any], variable: str
) -> None:
    body = {**await world.job_request(), "integrations": [BOARD, integration]}
    response = await with_trackers(world, "tensorboard").call("POST", JOBS, json=body)
    error = response.json()["error"]

    assert (response.status_code, error["param"]) == (400, "integrations.1.type")
    assert variable in error["message"]


@pytest.mark.parametrize(
    ("first_steps", "second_steps", "sent_steps", "all_sent"),
    [
        (range(1, 4), range(4, 6), [1, 2], [1, 2, 3, 4]),  # all but the newest
        (range(1, 5), range(2, 7), [1, 2, 3], [1, 2, 3, 4, 5]),  # done again after an eviction
        ([1, 2, 5, 6], [3, 4], [1, 2], [1, 2, 3, 4, 5]),  # those in between are still in Blob
    ],
)
async def test_each_step_is_sent_once_in_order_while_the_job_trains(
    world: World,
    first_steps: Iterable[int],
    second_steps: Iterable[int],
    sent_steps: list[int],
    all_sent: list[int],
) -> None:
    job, tracker = await a_job(world, MLFLOW), FakeTracker()
    await measure(world, job, first_steps)
    first = await serve_later(world, tracker)
    await measure(world, job, second_steps, gen=2)

    assert (first, await serve_later(world, tracker)) == (sent_steps, all_sent)
    assert await tracker_events(world, job) == ["tracker.started"]


async def test_once_the_job_has_ended_all_is_sent_and_the_run_ends(world: World) -> None:
    job, tracker = await a_job(world, MLFLOW), FakeTracker()
    job = await finish_job(world, job["id"])
    await measure(world, job, [1, 3])
    steps = await serve_later(world, tracker, seconds=90)
    calls = tracker.calls
    await serve_later(world, tracker, seconds=3600)

    assert (steps, tracker.calls) == ([1, 3], calls)
    assert tracker.outcomes == {job["id"]: JobState.SUCCEEDED}


async def test_killed_between_sending_and_writing_it_down_no_step_is_sent_twice(
    world: World,
) -> None:
    server = MlflowServer()
    job = await a_job(world, MLFLOW)
    await measure(world, job, range(1, 4))

    class Dies(Mlflow):
        async def send(self, run: Any, points: Any) -> str:  # noqa: ANN401 - as the base class
            await super().send(run, points)
            raise Killed

    world.clock.advance(seconds=1)
    with pytest.raises(Killed):
        await runs(world, Dies.at("http://mlflow", "", server)).run_once()
    await measure(world, job, range(4, 6))
    world.clock.advance(seconds=CLAIM_DURATION.total_seconds())
    await runs(world, Mlflow.at("http://mlflow", "", server)).run_once()

    (logged,) = server.logged.values()
    steps = [m["step"] for m in logged if m["key"] == "train/loss"]
    assert (len(server.runs), steps) == (1, [1, 2, 3, 4])


async def test_one_of_two_replicas_serves_a_run(world: World) -> None:
    job, tracker = await a_job(world, MLFLOW), FakeTracker()
    await measure(world, job, range(1, 4))
    world.clock.advance(seconds=1)

    class Asks(FakeTracker):
        async def send(self, run: Any, points: Any) -> str:  # noqa: ANN401 - as the base class
            await runs(world, tracker).run_once()
            return await super().send(run, points)

    await runs(world, Asks()).run_once()

    assert tracker.calls == 0


async def test_a_tracker_that_fails_is_given_up_after_a_day_with_one_event(world: World) -> None:
    job, tracker = await a_job(world, MLFLOW), FakeTracker(fault=TrackerError("gone away"))
    await measure(world, job, range(1, 4))
    await serve_later(world, tracker)
    before = await tracker_events(world, job)
    for _ in "ab":
        await serve_later(world, tracker, seconds=TIMEOUT.total_seconds())

    assert (before, await tracker_events(world, job)) == ([], ["tracker.given_up"])
    assert (await world.job(job["id"]))["status"] != "failed"


async def test_a_tracker_that_comes_back_gets_what_it_missed(world: World) -> None:
    job, tracker = await a_job(world, MLFLOW), FakeTracker(fault=TrackerError("gone away"))
    await measure(world, job, range(1, 4))
    await serve_later(world, tracker)
    tracker.fault = None

    assert await serve_later(world, tracker) == [1, 2]


async def test_no_answer_event_or_log_shows_a_secret(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, server = "a-secret-of-the-operator", MlflowServer()
    job = await a_job(world, MLFLOW)
    await measure(world, job, range(1, 4))
    tracker = Mlflow.at(f"http://user:{secret}@mlflow", secret, server)
    world.clock.advance(seconds=1)
    await runs(world, tracker).run_once()
    await measure(world, job, range(4, 7))
    server.status = 403
    for _ in "ab":
        world.clock.advance(seconds=TIMEOUT.total_seconds())
        await runs(world, tracker).run_once()
    events = (await world.call("GET", f"{JOBS}/{job['id']}/events?limit=100")).text
    logged = str([vars(record) for record in caplog.records])

    assert await tracker_events(world, job) == ["tracker.started", "tracker.given_up"]
    assert "tracker.failed" in logged
    assert secret not in events + logged + str(await world.job(job["id"]))


def registering(world: World) -> World:
    """Return the same world, with a workspace."""
    parts = replace(world.parts, registers_models=True)
    world.http = client(make_app(parts))
    return world


def registrations(world: World, registry: FakeRegistry) -> ModelRegistrations:
    return ModelRegistrations(
        engine=world.engine, store=world.store, registry=registry, now=world.clock
    )


async def model_events(world: World, job: dict[str, Any]) -> list[str]:
    """Return the events about it."""
    return [code for code in await world.event_codes(job["id"]) if code.startswith("model.")]


async def test_a_final_model_is_registered_once_with_where_it_comes_from(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    azure_models = FakeRegistry()
    rounds = [await registrations(world, azure_models).run_once() for _ in "ab"]
    view = await world.job(job["id"])

    (model,) = azure_models.models.values()
    step = str(job["result"]["step"])
    assert rounds == [[job["id"]], []]
    assert model.url.endswith(f"/{job['id']}/{job['result']['path']}")
    assert model.tags == {
        "rekindle-job": job["id"],
        "rekindle-model": job["fine_tuned_model"],
        "base-model": job["model"],
        "dataset": job["training_file"],
        "checkpoint-step": step,
    }
    assert view["result"]["registered_model"] == {"name": job["id"], "version": step}
    assert await model_events(world, job) == ["model.registered"]


async def test_a_job_that_does_not_ask_for_it_is_not_registered(world: World) -> None:
    await make_model(registering(world))
    registry = FakeRegistry()

    assert await registrations(world, registry).run_once() == []
    assert registry.models == {}


async def test_killed_between_registering_and_writing_it_down_it_is_registered_once(
    world: World,
) -> None:
    job = await make_model(registering(world), register_model=True)

    class Dies(FakeRegistry):
        async def register(self, model: Any) -> None:  # noqa: ANN401 - as the base class
            await super().register(model)
            raise Killed

    registry = Dies()
    with pytest.raises(Killed):
        await registrations(world, registry).run_once()
    before = await model_events(world, job)
    await registrations(world, FakeRegistry(models=registry.models)).run_once()

    assert (before, await model_events(world, job)) == ([], ["model.registered"])
    assert len(registry.models) == 1


async def test_a_workspace_that_fails_is_asked_again_and_given_up_after_a_day(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    registry = FakeRegistry(fault=CloudError("gone away"))
    await registrations(world, registry).run_once()
    before = await model_events(world, job)
    world.clock.advance(seconds=REGISTRY_TIMEOUT.total_seconds())
    await registrations(world, registry).run_once()
    registry.fault = None

    assert await registrations(world, registry).run_once() == []
    assert (before, await model_events(world, job)) == ([], ["model.not_registered"])
    assert (await world.job(job["id"]))["result"]["registered_model"] is None


async def test_a_workspace_that_comes_back_gets_the_model(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    registry = FakeRegistry(fault=CloudError("gone away"))
    await registrations(world, registry).run_once()
    registry.fault = None

    assert await registrations(world, registry).run_once() == [job["id"]]


async def test_a_deleted_model_is_not_registered(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    await world.call("DELETE", f"/v1/models/{job['fine_tuned_model']}")

    assert await registrations(world, FakeRegistry()).run_once() == []


async def test_one_of_two_replicas_writes_the_event(world: World) -> None:
    job = await make_model(registering(world), register_model=True)

    async with world.engine.begin() as conn:
        wrote = [await model_registry.settle(conn, job["id"], {"name": "n"}) for _ in "ab"]

    assert wrote == [True, False]
