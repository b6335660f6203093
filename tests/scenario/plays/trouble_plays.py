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

_FAILURES = 16  # in a row: enough to open the circuits of the list and the region twice
_FOREVER = 10**6


async def failing_region(job: ScenarioJob) -> None:
    """Let Azure fail repeatedly during training until the circuit opens, then recover."""
    if "failing" not in job.done and job.is_training(step=3):
        job.scenario.cloud.fail_next += [
            CloudError("Azure does not answer") for _ in range(_FAILURES)
        ]
        job.done.add("failing")
    has_recovered = "failing" in job.done and not job.scenario.cloud.fail_next
    job.waited += has_recovered
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
        # Longer than any backoff, so every waiting replica has returned.
        job.scenario.world.clock.advance(minutes=16)
    job.scenario.cloud.spot_quotas[SPOT.region] = SpotCores(limit=0 if waits else 10_000, used=0)
    job.waited += bool(job.job_id)
    job.finish()


async def undeletable(job: ScenarioJob) -> None:
    """Let deletes fail for a quarter of an hour, then again for machines created too late."""
    job.train(3)
    if "cancel" not in job.done:
        if job.is_training(step=3):
            job.scenario.cloud.failing_deletes = _FOREVER
            await job.request_command("cancel")
    elif job.state is not JobState.CANCELLED or not job.have_all_ended():
        if job.attempts[-1].state is AttemptState.TERMINATING:
            _outlast(job, "machines")
    else:
        await _create_late(job)


async def _create_late(job: ScenarioJob) -> None:
    """Create the scale set again, like a worker that was suspended meanwhile."""
    is_billed = scale_set_name(job.attempts[-1].id) in job.scenario.cloud.billed_names()
    if "created late" not in job.done:
        job.scenario.cloud.failing_deletes = _FOREVER
        with suppress(CloudError):  # in a storm
            await job.scenario.cloud.create(
                job.scenario.world.attempts.specs.spec(job.attempts[-1])
            )
            job.done.add("created late")
        job.waited = 0
    elif is_billed:
        _outlast(job, "orphans")
    elif await job.are_all_billed():
        job.done.add("orphans billed")


def _outlast(job: ScenarioJob, action: str) -> None:
    """Wait longer than the service's timeout of a delete, then let Azure delete."""
    job.waited += 1
    if job.waited == 10:
        job.scenario.world.clock.advance(seconds=TOO_LONG_TO_DELETE.total_seconds())
    if job.waited >= 24:
        job.scenario.cloud.failing_deletes = 0
        job.done.add(action)


async def checkpoint_damaged(job: ScenarioJob) -> None:
    """Evict a machine, and delete a file of the checkpoint that the next attempt loads."""
    job.train(5)
    if "damaged" not in job.done and job.is_training(step=5):
        data, _ = await job.scenario.world.store.read(job.job_id, HEAD)
        newest = Head.from_json(data).newest
        if newest is not None and newest.step >= 4:
            await job.scenario.world.store.delete(
                job.job_id, f"{newest.path}/rank-00000.safetensors"
            )
            job.evict()
            job.done.add("damaged")
    if "damaged" in job.done and len(job.attempts) > 1:
        job.finish()


async def image_refused(job: ScenarioJob) -> None:
    """Refuse the image to every machine; the job ends with its first attempt."""
    job.train(0)


async def gpu_broken(job: ScenarioJob) -> None:
    """Break a GPU while it trains; the machine is deleted and replaced."""
    job.train(3)
    if "broken" not in job.done and job.is_training(step=3):
        job.own_machines()[-1].unhealthy = True
        job.done.add("broken")
    continued = any(m.number >= 2 for m in job.own_machines()) or len(job.attempts) > 1
    if "broken" in job.done and continued:
        job.finish()


PLAYS = {
    "failing region": Play(
        failing_region, rate_limited=True, chatty=True, periodic_work=("queue",)
    ),
    "misconfigured": Play(misconfigured, chatty=True),
    "queued": Play(queued, periodic_work=("cores", "queue", "market", "bills")),
    "undeletable": Play(
        undeletable,
        JobState.CANCELLED,
        chatty=True,
        orphans=True,
        until=frozenset({"orphans billed"}),
    ),
    "checkpoint damaged": Play(checkpoint_damaged),
    "image refused": Play(image_refused, JobState.FAILED, boots=False),
    "GPU broken": Play(gpu_broken),
}
