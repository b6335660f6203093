"""Final models are registered: once, whatever is killed, and nothing waits for it."""

from dataclasses import replace
from typing import Any

import pytest

from service.api.app import make_app
from service.cloud.fake import FakeRegistry
from service.cloud.provider import CloudError
from service.reconciler.jobs.model_registry import TIMEOUT, ModelRegistrations
from tests.integration.finished_jobs import make_model
from tests.world import World, client


class Killed(BaseException):
    """The process ends here."""


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
    found = FakeRegistry()
    rounds = [await registrations(world, found).run_once() for _ in "ab"]
    shown = await world.job(job["id"])

    (model,) = found.models.values()
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
    assert shown["result"]["registered_model"] == {"name": job["id"], "version": step}
    assert await model_events(world, job) == ["model.registered"]


async def test_a_job_that_does_not_ask_for_it_is_not_registered(world: World) -> None:
    await make_model(registering(world))
    found = FakeRegistry()

    assert await registrations(world, found).run_once() == []
    assert found.models == {}


async def test_killed_between_registering_and_writing_it_down_it_is_registered_once(
    world: World,
) -> None:
    job = await make_model(registering(world), register_model=True)

    class Dies(FakeRegistry):
        async def register(self, model: Any) -> None:  # noqa: ANN401 - as the base class
            await super().register(model)
            raise Killed

    found = Dies()
    with pytest.raises(Killed):
        await registrations(world, found).run_once()
    before = await model_events(world, job)
    await registrations(world, FakeRegistry(models=found.models)).run_once()

    assert (before, await model_events(world, job)) == ([], ["model.registered"])
    assert len(found.models) == 1


async def test_a_workspace_that_fails_is_asked_again_and_given_up_after_a_day(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    found = FakeRegistry(fault=CloudError("gone away"))
    await registrations(world, found).run_once()
    before = await model_events(world, job)
    world.clock.advance(seconds=TIMEOUT.total_seconds())
    await registrations(world, found).run_once()
    found.fault = None

    assert await registrations(world, found).run_once() == []
    assert (before, await model_events(world, job)) == ([], ["model.not_registered"])
    assert (await world.job(job["id"]))["result"]["registered_model"] is None


async def test_a_workspace_that_comes_back_gets_the_model(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    found = FakeRegistry(fault=CloudError("gone away"))
    await registrations(world, found).run_once()
    found.fault = None

    assert await registrations(world, found).run_once() == [job["id"]]


async def test_a_deleted_model_is_not_registered(world: World) -> None:
    job = await make_model(registering(world), register_model=True)
    await world.call("DELETE", f"/v1/models/{job['fine_tuned_model']}")

    assert await registrations(world, FakeRegistry()).run_once() == []
