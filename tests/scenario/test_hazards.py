"""Hazards that random lives have found, each by its name, in a life that meets it for certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.states import JobState
from tests.integration.manifests import seal
from tests.nodes.scripted_node import committed
from tests.scenario import worlds
from tests.scenario.job import ScenarioJob
from tests.scenario.machines.job_container import BlobWire
from tests.scenario.machines.machine import Machine
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.plays.play import Play
from tests.scenario.scenario import Scenario, job_events
from tests.scenario.seams import Harm, Hook, Point
from tests.world import World
from trainer.contract import HEAD, NodePhase

FENCE = "write operations/attempts/heads.py fence"
SIGHT = "commit reconciler/attempts/observations.py record_observations"


@pytest.fixture
async def empty(engine: AsyncEngine, database_url: str) -> AsyncIterator[World]:
    """Yield an empty service."""
    async with worlds.a_world(engine, database_url) as world:
        yield world


@pytest.mark.parametrize("harm", [Harm.LATE, Harm.BELATED, Harm.LOST, Harm.AFTER])
async def test_a_worker_that_comes_late_neither_opens_nor_fences_a_second_generation(
    empty: World, harm: Harm
) -> None:
    hook = Hook(aim=Point(FENCE), harm=harm)
    empty.store.now = empty.clock  # so HEAD has a date, as in Blob
    scenario = Scenario(empty, PLAYS["undisturbed"], hook)

    assert await scenario.run() == []

    (job,) = scenario.jobs
    assert hook.struck
    assert (await job_events(job))["generations"] == [1]
    assert (await job.head()).generation == 1


async def test_a_model_that_is_committed_after_the_look_is_not_trained_again(
    engine: AsyncEngine, database_url: str
) -> None:
    async with worlds.a_world(engine, database_url) as empty:
        undisturbed = Scenario(empty, PLAYS["undisturbed"])
        await undisturbed.expect(lambda: any(p.what == FENCE for p in undisturbed.hook.points))
    names = [p.what for p in undisturbed.hook.points]
    nth = names[: names.index(FENCE)].count(SIGHT)  # the one that decides to open

    hook = Hook(aim=Point(SIGHT, nth=nth), harm=Harm.RESTART)
    async with worlds.a_world(engine, database_url) as empty:
        scenario = Scenario(empty, PLAYS["undisturbed"], hook)
        (job,) = scenario.jobs
        hook.restart = partial(_commit_model, job)
        assert await scenario.run() == []
        story = await job_events(job)

    assert hook.struck
    assert story["generations"] == []
    assert job.state is JobState.SUCCEEDED


async def test_a_reimaged_node_is_not_started_again_in_the_same_generation(empty: World) -> None:
    scenario = await _live(empty, lambda machine: machine.lose_disk(), step=2)

    assert (await job_events(scenario.jobs[0]))["generations"] == [1, 2]


async def test_a_supervisor_killed_between_its_disk_and_its_effect_starts_no_trainer_twice(
    empty: World,
) -> None:
    scenario = Scenario(empty, PLAYS["undisturbed"])
    killed: list[str] = []

    def is_killed() -> bool:
        for machine in scenario.jobs[0].machines.values():
            launching = machine.phase is NodePhase.RUNNING and machine.trainer is None
            if launching and not killed:
                killed.append(machine.vm_id)
                return True
        return False

    scenario.kills_supervisor = is_killed

    assert await scenario.run() == []
    assert killed
    assert (await job_events(scenario.jobs[0]))["generations"] == [1, 2]
    assert len(scenario.jobs[0].attempts) == 1


async def test_saves_that_lay_whole_when_the_supervisors_were_killed_are_committed(
    empty: World,
) -> None:
    scenario = Scenario(empty, PLAYS["undisturbed"])
    (job,) = scenario.jobs
    killed: set[str] = set()

    def is_killed() -> bool:
        for machine in job.machines.values():
            has_complete_save = any(save.is_complete for save in machine.outbox.values())
            if has_complete_save and machine.boots == 1 and machine.vm_id not in killed:
                killed.add(machine.vm_id)
                return True
        return False

    scenario.kills_supervisor = is_killed
    await scenario.expect(lambda: len(killed) == 2)
    await scenario.pass_time(2)

    newest = (await job.head()).newest
    assert newest is not None
    assert (newest.generation, newest.step) == (1, 2)
    assert await scenario.run() == []


async def test_a_commit_that_a_fence_overtakes_is_not_written(empty: World) -> None:
    scenario = Scenario(empty, PLAYS["undisturbed"])
    (job,) = scenario.jobs
    scenario.blob_wire = overtaken = Overtaken(job)

    assert await scenario.run() == []
    assert overtaken.fenced
    assert (await job_events(job))["generations"] == [1, 2]


async def test_a_node_that_lost_its_trainer_and_is_evicted_ends_the_attempt(empty: World) -> None:
    """Its peer is gone when an eviction is announced: no collective can end."""
    scenario = await _live(empty, _lose_the_trainer_and_be_noticed, step=3)

    assert len(scenario.jobs[0].attempts) == 2


class Overtaken(BlobWire):
    """Takes HEAD for the next generation between the first commit's read and its write."""

    def __init__(self, job: ScenarioJob) -> None:
        super().__init__(job.scenario.dice)
        self.job = job
        self.fenced = False

    async def send(self, request: Callable[[], Awaitable[str]]) -> str:
        if not self.fenced:
            self.fenced = True
            head = await self.job.head()
            data = head.fenced(head.generation + 1).to_json().encode()
            await self.job.scenario.store.write(self.job.job_id, HEAD, data)
        return await super().send(request)


async def _live(world: World, strike: Callable[[Machine], object], step: int) -> Scenario:
    """Live a job of which one machine is struck once, when it trains; then it trains on."""

    async def turn(job: ScenarioJob) -> None:
        job.train(step)
        if "struck" not in job.done and job.is_training(step):
            strike(job.own_machines()[0])
            job.done.add("struck")
        elif "struck" in job.done and (len(job.attempts) > 1 or _numbers(job) != {1}):
            job.finish()

    scenario = Scenario(world, Play(turn))
    assert await scenario.run() == []
    return scenario


def _numbers(job: ScenarioJob) -> set[int]:
    return {machine.number for machine in job.own_machines()}


def _lose_the_trainer_and_be_noticed(machine: Machine) -> None:
    assert machine.trainer is not None
    machine.trainer.planned.clear()
    machine.trainer.alive = False
    machine.announce_eviction()


async def _commit_model(job: ScenarioJob) -> None:
    """Commit a model, as a node that nobody hears any more."""
    store, head = job.scenario.store, await job.head()
    entry = committed(6, head.generation, "final")
    files = {"model.safetensors": b"{}", "config.json": b"{}"}
    digest = await seal(store, job.job_id, entry.path, files)
    model = head.with_model(replace(entry, manifest_sha256=digest))
    await store.write(job.job_id, HEAD, model.to_json().encode())
