"""What carries our tag and is no scale set is told to operators, and left alone."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import JOB_TAG, OWNER_TAG, Misconfigured
from service.domain.cloud.fleet import TaggedResource
from service.reconciler.sweeps import untracked_resources
from service.reconciler.sweeps.untracked_resources import ALARM, UntrackedResourceSweep
from tests.clock import Clock

DISK = "Microsoft.Compute/disks/old"


def watched(engine: AsyncEngine, clock: Clock) -> tuple[FakeCloud, UntrackedResourceSweep]:
    """Return a cloud with a disk of ours and one of a neighbour."""
    cloud = FakeCloud(now=clock)
    tags = {OWNER_TAG: cloud.owner, JOB_TAG: "ftjob-1"}
    disk = TaggedResource(kind="Microsoft.Compute/disks", name="old", region="eastus", tags=tags)
    cloud.untracked += [disk, replace(disk, name="theirs", tags={OWNER_TAG: "neighbour"})]
    return cloud, UntrackedResourceSweep(engine=engine, cloud=cloud, now=clock)


async def test_an_untracked_resource_is_reported_once_a_day(
    engine: AsyncEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(engine, clock)
    told = []
    with caplog.at_level(logging.ERROR):
        for _ in range(4 * 25):
            told += await watch.run_once()
            clock.advance(minutes=15)

    assert told == [DISK, DISK]
    alarms = [vars(r) for r in caplog.records if r.getMessage() == ALARM]
    assert [(a["resource"], a["region"], a["job"]) for a in alarms] == [
        (DISK, "eastus", "ftjob-1")
    ] * 2
    assert len(cloud.untracked) == 2, "a person's disk was deleted"


async def test_what_goes_before_the_next_look_is_no_alarm(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, watch = watched(engine, clock)
    untracked = list(cloud.untracked)

    told = [await watch.run_once()]
    cloud.untracked.clear()
    clock.advance(minutes=15)
    told.append(await watch.run_once())
    cloud.untracked += untracked
    clock.advance(minutes=15)
    told.append(await watch.run_once())

    assert told == [[], [], []]


async def test_a_list_that_is_refused_forgets_nothing(
    engine: AsyncEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(engine, clock)

    await watch.run_once()
    clock.advance(minutes=15)
    cloud.fail_next = [Misconfigured("no role")]
    with caplog.at_level(logging.WARNING):
        refused = await watch.run_once()

    assert (refused, await watch.run_once()) == ([], [DISK])
    assert "sweep.list_failed" in caplog.messages


async def test_a_replica_whose_clock_was_ahead_delays_no_alarm(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, watch = watched(engine, clock)
    ahead = Clock()
    ahead.at = clock() + timedelta(days=365)
    wrong = replace(watch, now=ahead)
    for _ in range(2):
        await wrong.run_once()
        ahead.advance(minutes=15)

    first = await watch.run_once()
    clock.advance(minutes=15)

    assert (first, await watch.run_once()) == ([], [DISK])
    assert len(cloud.untracked) == 2


async def test_a_process_that_is_killed_while_it_raises_an_alarm_leaves_it_to_the_next_look(
    engine: AsyncEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_: str, __: TaggedResource) -> None:
        raise asyncio.CancelledError

    _, watch = watched(engine, clock)
    await watch.run_once()
    clock.advance(minutes=15)
    with monkeypatch.context() as patch:
        patch.setattr(untracked_resources, "_log_alarm", die)
        with pytest.raises(asyncio.CancelledError):
            await watch.run_once()

    assert await watch.run_once() == [DISK]
