"""Plays of one job: what user, machines and Azure do when a condition holds.

Nothing happens at a fixed time: each turn looks at what is there, so that a play goes on wherever
the service was struck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.domain.states import AttemptState, JobState, Outcome
from tests.scenario.plays import storage_plays, trouble_plays
from tests.scenario.plays.play import Play
from tests.world import SPOT

if TYPE_CHECKING:
    from tests.scenario.job import ScenarioJob

ELASTIC = {
    "infrastructure": {"nodes": 2, "elastic": {"min_nodes": 1}},
    "hyperparameters": {"n_epochs": 50, "batch_size": 2},
}
BATCH = 3  # jobs: where each is done again by itself, one before and one after the one struck


async def undisturbed(job: ScenarioJob) -> None:
    """Let it train to its end."""
    job.finish()


async def evicted(job: ScenarioJob) -> None:
    """Evict a machine without notice; the next attempt finishes the job."""
    if "evicted" not in job.done and job.is_training(step=3):
        job.evict()
        job.done.add("evicted")
    job.finish() if "evicted" in job.done and len(job.attempts) > 1 else job.train(3)


async def noticed(job: ScenarioJob) -> None:
    """Announce an eviction: all save and stop, and the next attempt finishes the job."""
    if "noticed" not in job.done and job.is_training(step=3):
        job.own_machines()[0].announce_eviction()
        job.done.add("noticed")
    if "noticed" in job.done and "gone" not in job.done and len(job.attempts) > 1:
        job.done.add("gone")
    job.finish() if "gone" in job.done else job.train(3)


async def restarted(job: ScenarioJob) -> None:
    """Kill a supervisor, which starts again; the attempt goes on with it."""
    if "restarted" not in job.done and job.is_training(step=3):
        job.own_machines()[0].kill_supervisor()
        job.done.add("restarted")
    began_again = any(m.number >= 2 for m in job.own_machines()) or len(job.attempts) > 1
    job.finish() if "restarted" in job.done and began_again else job.train(3)


async def paused(job: ScenarioJob) -> None:
    """Pause it, wait until no machine is left, and resume it."""
    job.train(3)
    if "pause" not in job.done:
        if job.is_training(step=3):
            await job.request_command("pause")
    elif "resume" not in job.done:
        if job.state is JobState.PAUSED and job.have_all_ended():
            await job.request_command("resume")
    else:
        if job.asked["pause"] > 1 and job.state is JobState.PAUSED:
            await job.request_command("resume")  # the first that it asked for came late, after all
        job.finish()


async def cancelled(job: ScenarioJob) -> None:
    """Cancel it while it trains."""
    job.train(3)
    if "cancel" not in job.done and job.is_training(step=3):
        await job.request_command("cancel")


async def cancelled_early(job: ScenarioJob) -> None:
    """Cancel it while its machines are created."""
    booting = job.attempts and job.attempts[-1].state is AttemptState.PROVISIONING
    if "cancel" not in job.done and booting and job.scenario.cloud.billed_names():
        await job.request_command("cancel")
    job.train(1)


async def refused(job: ScenarioJob) -> None:
    """Refuse capacity at once, then refuse it late, then grant it."""
    outcomes = [a.outcome for a in job.attempts].count(Outcome.NO_CAPACITY)
    job.scenario.cloud.sold_out.clear()
    job.scenario.cloud.sold_out_late.clear()
    if outcomes == 0:
        job.scenario.cloud.sold_out.add(SPOT)
    elif outcomes == 1:
        job.scenario.cloud.sold_out_late.add(SPOT)
    job.finish()


async def elastic(job: ScenarioJob) -> None:
    """Evict one of two machines: the other trains on, and takes in its replacement.

    Whether that still pays depends on how long the restart took; if not, it ends it alone.
    """
    job.train(3)
    if "evicted" not in job.done:
        if job.is_training(step=3):
            job.evict()
            job.done.add("evicted")
        return
    machines = job.own_machines()
    number = max((m.number for m in machines), default=0)
    if number >= 2:
        job.train(5)
        job.waited += 1
    if number >= 3 or len(job.attempts) > 1 or job.waited > 40:
        job.finish()


async def non_retryable(job: ScenarioJob) -> None:
    """Let every trainer fail on its data."""
    job.train(2)
    for machine in job.own_machines():
        machine.non_retryable = machine.step >= 2


async def silent(job: ScenarioJob) -> None:
    """Cut a machine off from the service for good; its attempt is given up."""
    first = (
        [m for m in job.machines.values() if m.attempt_id == job.attempts[0].id]
        if (job.attempts)
        else []
    )
    if job.is_training(step=3) and len(job.attempts) == 1:
        job.done.add("cut off")
    for machine in first:
        machine.silent = "cut off" in job.done
    job.finish() if len(job.attempts) > 1 else job.train(3)


PLAYS: dict[str, Play] = {
    "undisturbed": Play(undisturbed),
    "evicted": Play(evicted),
    "noticed": Play(noticed),
    "restarted": Play(restarted),
    "paused": Play(paused),
    "cancelled": Play(cancelled, JobState.CANCELLED),
    "cancelled early": Play(cancelled_early, JobState.CANCELLED),
    "refused": Play(refused),
    "elastic": Play(elastic, request=lambda _: ELASTIC),
    "non_retryable": Play(non_retryable, JobState.FAILED),
    "silent": Play(silent),
    "batch evicted": Play(evicted, jobs=BATCH),
    "batch noticed": Play(noticed, jobs=BATCH),
    **trouble_plays.PLAYS,
    **storage_plays.PLAYS,
}
