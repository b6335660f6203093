"""Plays in which Azure, Blob or a machine fails for longer than one answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from service.cloud.provider import CloudError, Misconfigured
from service.domain.cloud.fleet import SpotCores, scale_set_name
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.states import AttemptState, JobState
from tests.scenario.plays.play import Play
from tests.world import SPOT
from trainer.contract import HEAD, Head

if TYPE_CHECKING:
    from tests.scenario.job import ScenarioJob

_FAILURES = 16  # of Azure in a row: the list and the region each fall silent, and are tried again
_FOR_EVER = 10**6


async def ill_region(job: ScenarioJob) -> None:
    """Let Azure fail again and again while it trains, until the circuit opens, then answer."""
    if "ill" not in job.done and job.is_training(step=3):
        job.scenario.cloud.fail_next += [
            CloudError("Azure does not answer") for _ in range(_FAILURES)
        ]
        job.done.add("ill")
    well = "ill" in job.done and not job.scenario.cloud.fail_next
    job.waited += well
    job.finish() if job.waited > 2 else job.train(3)


async def misconfigured(job: ScenarioJob) -> None:
    """Forbid the first create, then grant the role."""
    if "forbidden" not in job.done:
        job.scenario.cloud.fail_creates.append(Misconfigured("AuthorizationFailed: no role"))
        job.done.add("forbidden")
    job.finish()


async def queued(job: ScenarioJob) -> None:
    """Use up the region's Spot quota for a quarter of an hour, then free it."""
    waits = job.waited < 8
    if job.waited == 5:
        job.scenario.world.clock.advance(
            minutes=16
        )  # whoever was told to come back later is there again
    job.scenario.cloud.spot_quotas[SPOT.region] = SpotCores(limit=0 if waits else 10_000, used=0)
    job.waited += bool(job.job_id)
    job.finish()


async def immortal(job: ScenarioJob) -> None:
    """Let deletes fail for a quarter of an hour, and again for machines that come too late."""
    job.train(3)
    if "cancel" not in job.done:
        if job.is_training(step=3):
            job.scenario.cloud.failing_deletes = _FOR_EVER
            await job.request_command("cancel")
    elif job.state is not JobState.CANCELLED or not job.have_all_ended():
        if job.attempts[-1].state is AttemptState.TERMINATING:
            _outlast(job, "machines")
    else:
        await _haunted(job)


async def _haunted(job: ScenarioJob) -> None:
    """Create the scale set once more, as a worker that slept through it all."""
    is_billed = scale_set_name(job.attempts[-1].id) in job.scenario.cloud.billed_names()
    if "haunted" not in job.done:
        job.scenario.cloud.failing_deletes = _FOR_EVER
        with suppress(CloudError):  # in a storm
            await job.scenario.cloud.create(
                job.scenario.world.attempts.specs.spec(job.attempts[-1])
            )
            job.done.add("haunted")
        job.waited = 0
    elif is_billed:
        _outlast(job, "ghosts")
    elif await job.are_all_billed():
        job.done.add("laid")


def _outlast(job: ScenarioJob, action: str) -> None:
    """Wait longer than the service's patience, then let Azure delete."""
    job.waited += 1
    if job.waited == 10:
        job.scenario.world.clock.advance(seconds=TOO_LONG_TO_DELETE.total_seconds())
    if job.waited >= 24:
        job.scenario.cloud.failing_deletes = 0
        job.done.add(action)


async def rotten(job: ScenarioJob) -> None:
    """Evict a machine, and delete a file of the checkpoint that the next attempt loads."""
    job.train(5)
    if "rotten" not in job.done and job.is_training(step=5):
        data, _ = await job.scenario.world.store.read(job.job_id, HEAD)
        newest = Head.from_json(data).newest
        if newest is not None and newest.step >= 4:
            await job.scenario.world.store.delete(
                job.job_id, f"{newest.path}/rank-00000.safetensors"
            )
            job.evict()
            job.done.add("rotten")
    if "rotten" in job.done and len(job.attempts) > 1:
        job.finish()


async def unbootable(job: ScenarioJob) -> None:
    """Refuse the image to every machine; the job ends with its first attempt."""
    job.train(0)


async def unhealthy(job: ScenarioJob) -> None:
    """Break a GPU while it trains; the machine is deleted and replaced."""
    job.train(3)
    if "ill" not in job.done and job.is_training(step=3):
        job.own_machines()[-1].unhealthy = True
        job.done.add("ill")
    went_on = any(m.number >= 2 for m in job.own_machines()) or len(job.attempts) > 1
    if "ill" in job.done and went_on:
        job.finish()


PLAYS = {
    "ill region": Play(ill_region, rate_limited=True, chatty=True, beside=("queue",)),
    "misconfigured": Play(misconfigured, chatty=True),
    "queued": Play(queued, beside=("cores", "queue", "market", "bills")),
    "immortal": Play(
        immortal, JobState.CANCELLED, chatty=True, ghosts=True, until=frozenset({"laid"})
    ),
    "rotten": Play(rotten),
    "unbootable": Play(unbootable, JobState.FAILED, boots=False),
    "unhealthy": Play(unhealthy),
}
