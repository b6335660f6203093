"""Whole lives of a job, as what user, machines and Azure do when something is so.

Nothing happens at a time: each turn looks at what is there, so that a play goes on as it would
wherever the service was struck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.domain.states import AttemptState, JobState, Outcome
from tests.chaos import chores, troubles
from tests.chaos.play import Play
from tests.world import SPOT

if TYPE_CHECKING:
    from tests.chaos.life import Life

ELASTIC = {
    "infrastructure": {"nodes": 2, "elastic": {"min_nodes": 1}},
    "hyperparameters": {"n_epochs": 50, "batch_size": 2},
}
CROWD = 3  # jobs: where each is done again by itself, one before and one after the one struck


async def undisturbed(life: Life) -> None:
    """It trains to its end."""
    life.finish()


async def evicted(life: Life) -> None:
    """Azure takes a machine without a word; the next attempt ends it."""
    if "evicted" not in life.done and life.training(step=3):
        life.evict()
        life.done.add("evicted")
    life.finish() if "evicted" in life.done and len(life.attempts) > 1 else life.hold(3)


async def noticed(life: Life) -> None:
    """Azure announces it; all save and stop; then the machine goes."""
    if "noticed" not in life.done and life.training(step=3):
        life.mine()[0].noticed = life.mine()[0].news = True
        life.done.add("noticed")
    if "noticed" in life.done and "gone" not in life.done and len(life.attempts) > 1:
        life.done.add("gone")
    life.finish() if "gone" in life.done else life.hold(3)


async def restarted(life: Life) -> None:
    """A machine's supervisor starts again and knows of nothing; the attempt goes on with it."""
    if "restarted" not in life.done and life.training(step=3):
        life.mine()[0].restart()
        life.done.add("restarted")
    began_again = any(m.number >= 2 for m in life.mine()) or len(life.attempts) > 1
    life.finish() if "restarted" in life.done and began_again else life.hold(3)


async def paused(life: Life) -> None:
    """The user pauses it, finds no machine left, and resumes it."""
    life.hold(3)
    if "pause" not in life.done:
        if life.training(step=3):
            await life.wish("pause")
    elif "resume" not in life.done:
        if life.state is JobState.PAUSED and life.all_ended():
            await life.wish("resume")
    else:
        if life.asked["pause"] > 1 and life.state is JobState.PAUSED:
            await life.wish("resume")  # the first that it asked for came late, after all
        life.finish()


async def cancelled(life: Life) -> None:
    """The user cancels it while it trains."""
    life.hold(3)
    if "cancel" not in life.done and life.training(step=3):
        await life.wish("cancel")


async def cancelled_early(life: Life) -> None:
    """The user cancels it while its machines are being made."""
    booting = life.attempts and life.attempts[-1].state is AttemptState.PROVISIONING
    if "cancel" not in life.done and booting and life.cloud.costing():
        await life.wish("cancel")
    life.hold(1)


async def refused(life: Life) -> None:
    """No room at once, then no room after all, then there is."""
    outcomes = [a.outcome for a in life.attempts].count(Outcome.NO_CAPACITY)
    life.cloud.sold_out.clear()
    life.cloud.sold_out_late.clear()
    if outcomes == 0:
        life.cloud.sold_out.add(SPOT)
    elif outcomes == 1:
        life.cloud.sold_out_late.add(SPOT)
    life.finish()


async def elastic(life: Life) -> None:
    """One of two machines is taken; the other trains on, and takes in what comes in its place.

    Whether that still pays depends on how long the restart took; if not, it ends it alone.
    """
    life.hold(3)
    if "evicted" not in life.done:
        if life.training(step=3):
            life.evict()
            life.done.add("evicted")
        return
    mine = life.mine()
    number = max((m.number for m in mine), default=0)
    if number >= 2:
        life.hold(5)
        life.waited += 1
    if number >= 3 or len(life.attempts) > 1 or life.waited > 40:
        life.finish()


async def hopeless(life: Life) -> None:
    """Its data cannot be trained on, on any machine."""
    life.hold(2)
    for machine in life.mine():
        machine.hopeless = machine.step >= 2


async def silent(life: Life) -> None:
    """A machine is cut off from the service for good, and its attempt is given up."""
    first = (
        [m for m in life.machines.values() if m.attempt_id == life.attempts[0].id]
        if (life.attempts)
        else []
    )
    if life.training(step=3) and len(life.attempts) == 1:
        life.done.add("cut off")
    for machine in first:
        machine.silent = "cut off" in life.done
    life.finish() if len(life.attempts) > 1 else life.hold(3)


PLAYS: dict[str, Play] = {
    "undisturbed": Play(undisturbed),
    "evicted": Play(evicted),
    "noticed": Play(noticed),
    "restarted": Play(restarted),
    "paused": Play(paused),
    "cancelled": Play(cancelled, JobState.CANCELLED),
    "cancelled early": Play(cancelled_early, JobState.CANCELLED),
    "refused": Play(refused),
    "elastic": Play(elastic, asks=lambda _: ELASTIC),
    "hopeless": Play(hopeless, JobState.FAILED),
    "silent": Play(silent),
    "crowd": Play(evicted, jobs=CROWD),
    "crowd noticed": Play(noticed, jobs=CROWD),
    **troubles.PLAYS,
    **chores.PLAYS,
}
