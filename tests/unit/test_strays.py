"""What carries our tag and is no scale set is told to operators, and left alone."""

import logging
from dataclasses import replace

import pytest

from service.cloud.fake import FakeCloud
from service.cloud.provider import JOB_TAG, OWNER_TAG, Misconfigured
from service.domain.fleet import Resource
from service.reconciler.strays import ALARM, StrayWatch
from tests.clock import Clock

DISK = "Microsoft.Compute/disks/old"


def watched(clock: Clock) -> tuple[FakeCloud, StrayWatch]:
    """A cloud with a disk of ours and one of a neighbour."""
    cloud = FakeCloud(now=clock)
    tags = {OWNER_TAG: cloud.owner, JOB_TAG: "ftjob-1"}
    disk = Resource(kind="Microsoft.Compute/disks", name="old", region="eastus", tags=tags)
    cloud.strays += [disk, replace(disk, name="theirs", tags={OWNER_TAG: "neighbour"})]
    return cloud, StrayWatch(cloud=cloud, now=clock)


async def test_a_stray_that_stays_is_told_once_a_day(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(clock)
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
    assert len(cloud.strays) == 2, "a person's disk was deleted"


async def test_what_goes_before_the_next_look_is_no_alarm(clock: Clock) -> None:
    cloud, watch = watched(clock)
    strays = list(cloud.strays)

    told = [await watch.run_once()]
    cloud.strays.clear()
    told.append(await watch.run_once())
    cloud.strays += strays
    told.append(await watch.run_once())

    assert told == [[], [], []]


async def test_a_list_that_is_refused_forgets_nothing(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(clock)

    await watch.run_once()
    cloud.fail_next = [Misconfigured("no role")]
    with caplog.at_level(logging.WARNING):
        refused = await watch.run_once()

    assert (refused, await watch.run_once()) == ([], [DISK])
    assert "sweep.list_failed" in caplog.messages
