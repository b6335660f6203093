"""Plays in which Azure, Blob or a checkpoint is in trouble for longer than one answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from service.cloud.provider import CloudError, Misconfigured
from service.domain.cloud.fleet import SpotCores, scale_set_name
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.states import AttemptState, JobState
from tests.chaos.play import Play
from tests.world import SPOT
from trainer.contract import HEAD, Head

if TYPE_CHECKING:
    from tests.chaos.life import Life

_FAILURES = 16  # of Azure in a row: the list and the region each fall silent, and are tried again
_FOR_EVER = 10**6


async def ill_region(life: Life) -> None:
    """Azure fails again and again while it trains, is left alone, and answers again."""
    if "ill" not in life.done and life.training(step=3):
        life.cloud.fail_next += [CloudError("Azure does not answer") for _ in range(_FAILURES)]
        life.done.add("ill")
    well = "ill" in life.done and not life.cloud.fail_next
    life.waited += well
    life.finish() if life.waited > 2 else life.hold(3)


async def misconfigured(life: Life) -> None:
    """The first create is forbidden; somebody gives the role."""
    if "forbidden" not in life.done:
        life.cloud.fail_creates.append(Misconfigured("AuthorizationFailed: no role"))
        life.done.add("forbidden")
    life.finish()


async def queued(life: Life) -> None:
    """Others have all Spot cores of the region for a quarter of an hour; then there is room."""
    waits = life.waited < 8
    if life.waited == 5:
        life.world.clock.advance(minutes=16)  # whoever was told to come back later is there again
    life.cloud.spot_quotas[SPOT.region] = SpotCores(limit=0 if waits else 10_000, used=0)
    life.waited += bool(life.job_id)
    life.finish()


async def immortal(life: Life) -> None:
    """Its machines cannot be deleted for a quarter of an hour, nor can what a ghost makes later."""
    life.hold(3)
    if "cancel" not in life.done:
        if life.training(step=3):
            life.cloud.failing_deletes = _FOR_EVER
            await life.wish("cancel")
    elif life.state is not JobState.CANCELLED or not life.all_ended():
        if life.attempts[-1].state is AttemptState.TERMINATING:
            _outlast(life, "machines")
    else:
        await _haunted(life)


async def _haunted(life: Life) -> None:
    """A worker that slept through it all makes the set once more."""
    there = scale_set_name(life.attempts[-1].id) in life.cloud.costing()
    if "haunted" not in life.done:
        life.cloud.failing_deletes = _FOR_EVER
        with suppress(CloudError):  # in a storm
            await life.cloud.create(life.world.attempts.specs.spec(life.attempts[-1]))
            life.done.add("haunted")
        life.waited = 0
    elif there:
        _outlast(life, "ghosts")
    elif await life.all_billed():
        life.done.add("laid")


def _outlast(life: Life, what: str) -> None:
    """Some rounds, too long for patience, and some more; then Azure deletes after all."""
    life.waited += 1
    if life.waited == 10:
        life.world.clock.advance(seconds=TOO_LONG_TO_DELETE.total_seconds())
    if life.waited >= 24:
        life.cloud.failing_deletes = 0
        life.done.add(what)


async def rotten(life: Life) -> None:
    """A machine is taken, and what the last checkpoint held is gone when the next one loads it."""
    life.hold(5)
    if "rotten" not in life.done and life.training(step=5):
        data, _ = await life.world.store.read(life.job_id, HEAD)
        newest = Head.from_json(data).newest
        if newest is not None and newest.step >= 4:
            await life.world.store.delete(life.job_id, f"{newest.path}/model.safetensors")
            life.evict()
            life.done.add("rotten")
    if "rotten" in life.done and len(life.attempts) > 1:
        life.finish()


async def unbootable(life: Life) -> None:
    """The registry lets no machine in: all say so, and the job ends with its first attempt."""
    life.hold(0)


async def unhealthy(life: Life) -> None:
    """A GPU breaks while it trains; the machine is deleted, and another comes in its place."""
    life.hold(3)
    if "ill" not in life.done and life.training(step=3):
        life.mine()[-1].unhealthy = True
        life.done.add("ill")
    went_on = any(m.number >= 2 for m in life.mine()) or len(life.attempts) > 1
    if "ill" in life.done and went_on:
        life.finish()


PLAYS = {
    "ill region": Play(ill_region, rate_limited=True, chatty=True, beside=("queue",)),
    "misconfigured": Play(misconfigured, chatty=True),
    "queued": Play(queued, beside=("cores", "queue", "market", "bills")),
    "immortal": Play(immortal, JobState.CANCELLED, chatty=True, until=frozenset({"laid"})),
    "rotten": Play(rotten),
    "unbootable": Play(unbootable, JobState.FAILED, boots=False),
    "unhealthy": Play(unhealthy),
}
