"""The loop of a reconciler: nothing waits for what is slow, nothing that is taken is dropped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.db.attempts import attempts
from service.db.core import notify
from service.db.core.engine import driver_url
from service.db.core.notify import Listener
from service.domain.cloud.fleet import ScaleSet
from service.operations.core.liveness import GRACE, LoopLiveness
from service.reconciler.loop import CONCURRENT_STEPS, Loop, Step
from tests import waiting
from tests.integration.db.rows import add_attempt, add_job
from tests.world import World

SECOND = timedelta(seconds=1)


@asynccontextmanager
async def running(url: str, steps: list[Step]) -> AsyncIterator[asyncio.Event]:
    """Run a loop that takes these steps, and yield its stop event."""
    stop, listener = asyncio.Event(), Listener(driver_url(url))

    async def claim(limit: int) -> list[Step]:
        batch, steps[:limit] = steps[:limit], []
        return batch

    loop = asyncio.create_task(Loop(listener=listener, stop=stop).run_when_due("test", claim))
    try:
        yield stop
    finally:
        stop.set()
        await loop


@pytest.fixture
def done() -> list[int]:
    return []


async def test_a_step_that_hangs_holds_up_nothing_else(database_url: str, done: list[int]) -> None:
    gate = asyncio.Event()

    async def hang() -> None:
        await gate.wait()
        done.append(-1)

    async def quick() -> None:
        done.append(len(done))

    async with running(database_url, [hang, *[quick] * (3 * CONCURRENT_STEPS)]) as stop:
        await waiting.until(_length(done), lambda n: n == 3 * CONCURRENT_STEPS)
        stop.set()
        gate.set()

    assert done[-1] == -1  # it was finished before the loop ended


async def test_no_more_than_a_batch_is_under_way_at_a_time(
    database_url: str, done: list[int]
) -> None:
    active, peak = 0, 0

    async def step() -> None:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await asyncio.sleep(0)
        active -= 1
        done.append(1)

    async with running(database_url, [step] * (5 * CONCURRENT_STEPS)):
        await waiting.until(_length(done), lambda n: n == 5 * CONCURRENT_STEPS)

    assert peak <= CONCURRENT_STEPS


async def test_a_step_that_breaks_ends_neither_the_others_nor_the_loop(
    database_url: str, done: list[int]
) -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    async def quick() -> None:
        done.append(1)

    async with running(database_url, [broken, quick, broken, quick]):
        await waiting.until(_length(done), lambda n: n == 2)

    assert done == [1, 1]


async def test_what_failed_runs_again_soon_and_later_each_time_it_fails_again() -> None:
    fails, after = [*[True] * 5, False, True, False], list[float]()
    loop = TimelessLoop(listener=Listener("postgresql://nobody"), stop=asyncio.Event())

    async def run() -> None:
        after.append(sum(loop.pauses))
        loop.pauses.clear()
        if len(after) == len(fails):
            loop.stop.set()
        if fails[len(after) - 1]:
            raise OperationalError("select", None, Exception("there is no server"))

    await loop.run_every(60.0, "test", run)

    assert after == [60, 1, 2, 4, 8, 16, 60, 1]


@pytest.mark.parametrize("kind", ["every", "whenever"])
async def test_work_that_hangs_is_seen_however_often_it_is_done(world: World, kind: str) -> None:
    """It has the time that a slow sweep needs, and no more."""
    liveness, gate = LoopLiveness(world.clock), asyncio.Event()
    loop = TimelessLoop(listener=world.listener, stop=asyncio.Event(), liveness=liveness)
    started_steps = list[int]()

    async def hang() -> None:
        started_steps.append(1)
        await gate.wait()
        loop.stop.set()

    run_loop = loop.run_every if kind == "every" else partial(loop.run_on_notice, "topic")
    running = asyncio.create_task(run_loop(60.0, "sweep", hang))
    await waiting.until(_length(started_steps), lambda n: n == 1)
    delays = []
    for minutes in (0, 30, 30):  # 30 minutes, and ten times its period
        world.clock.advance(minutes=minutes)
        delays.append(liveness.late_loops())
    gate.set()
    await running

    assert delays == [[], [], ["sweep"]]


async def test_a_loop_whose_claims_all_fail_is_late_until_one_does_not(world: World) -> None:
    liveness, faults = LoopLiveness(world.clock), [RuntimeError("no right")] * 2
    loop = TimelessLoop(listener=world.listener, stop=asyncio.Event(), liveness=liveness)
    delays = []

    async def claim(_: int) -> list[Step]:
        delays.append(liveness.late_loops())
        world.clock.advance(seconds=(GRACE + SECOND).total_seconds())
        if faults:
            raise faults.pop()
        if len(delays) == 4:
            loop.stop.set()
        return []

    await asyncio.wait_for(loop.run_when_due("jobs", claim), 20)

    assert delays == [[], ["jobs"], ["jobs"], []]


@pytest.mark.parametrize("kind", ["every", "whenever"])
async def test_a_loop_that_waits_for_its_next_turn_is_not_late(world: World, kind: str) -> None:
    liveness, finished_tasks = LoopLiveness(world.clock), list[int]()
    loop = Loop(listener=world.listener, stop=asyncio.Event(), liveness=liveness)

    async def run() -> None:
        finished_tasks.append(1)

    run_loop = loop.run_every if kind == "every" else partial(loop.run_on_notice, "topic")
    running = asyncio.create_task(run_loop(3600.0, "sweep", run))
    await waiting.until(_length(finished_tasks), lambda n: n == (kind == "whenever"))
    await asyncio.sleep(0)  # until it waits
    delays = []
    for minutes in (59, 2):
        world.clock.advance(minutes=minutes)
        delays.append(liveness.late_loops())
    loop.stop.set()
    await running

    assert delays == [[], ["sweep"]]


@pytest.mark.parametrize("kind", ["every", "whenever"])
async def test_a_long_sweep_does_not_delay_a_drain(database_url: str, kind: str) -> None:
    started, cut_off = asyncio.Event(), asyncio.Event()

    async def sweep() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut_off.set()

    listener = Listener(driver_url(database_url))
    loop = Loop(listener=listener, stop=asyncio.Event(), drain=0.1)
    whenever = partial(loop.run_on_notice, "topic", 60.0)
    loop_task = asyncio.create_task(
        whenever("sweep", sweep) if kind == "whenever" else loop.run_every(0.01, "sweep", sweep)
    )
    await asyncio.wait_for(started.wait(), 20)
    loop.stop.set()
    await asyncio.wait_for(loop_task, 20)

    assert cut_off.is_set()


async def test_a_region_that_hangs_takes_no_connection_from_the_others(
    world: World, database_url: str
) -> None:
    """Far more steps wait for Azure than there are connections, and one more is taken."""
    gate = asyncio.Event()
    cloud = HangingCloud(now=world.clock, gate=gate)
    reconciler = replace(world.attempts, cloud=cloud)
    async with world.engine.begin() as conn:
        for number in range(60):
            await add_job(conn, world.clock(), id=f"job-{number}")
            await add_attempt(conn, world.clock(), id=f"att-{number}", job_id=f"job-{number}")
        for_free = {"id": "att-free", "job_id": "job-free", "state": "pending"}
        await add_job(conn, world.clock(), id="job-free")
        await add_attempt(conn, world.clock(), **for_free, due_at=world.clock() + SECOND)

    stop, listener = asyncio.Event(), Listener(driver_url(database_url))
    loop = Loop(listener=listener, stop=stop)
    running = asyncio.create_task(loop.run_when_due("attempts", reconciler.claim))
    await waiting.until(_number(cloud), lambda n: n == 60)
    world.clock.advance(seconds=1)
    attempt_state = await waiting.until(
        _state(world, "att-free"), lambda state: state == "provisioning"
    )
    still_hang = not gate.is_set() and cloud.waiting >= 60
    stop.set()
    gate.set()
    await running

    assert attempt_state == "provisioning"
    assert still_hang


async def test_while_no_step_is_free_nodes_are_heard_all_the_same(world: World) -> None:
    await world.attempts.claim(1)
    since = world.attempts.visibility.awake_since
    for _ in range(9):
        world.clock.advance(seconds=10)
        await world.attempts.check_database()
    await world.attempts.claim(1)

    assert world.attempts.visibility.awake_since == since


@dataclass(frozen=True, kw_only=True)
class TimelessLoop(Loop):
    """Its pauses take no time."""

    pauses: list[float] = field(default_factory=list)

    async def _pause(
        self, hinted: asyncio.Event, seconds: float, *ends: asyncio.Task[None]
    ) -> None:
        self.pauses.append(seconds)
        await super()._pause(hinted, 0.0, *ends)


@dataclass
class HangingCloud(FakeCloud):
    """It answers when the gate opens."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0

    async def get(self, name: str) -> ScaleSet:
        self.waiting += 1
        await self.gate.wait()
        return await super().get(name)


def _number(cloud: HangingCloud) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        return cloud.waiting

    return look


def _state(world: World, attempt_id: str) -> Callable[[], Awaitable[str]]:
    async def look() -> str:
        async with world.engine.connect() as conn:
            row = await attempts.find(conn, attempt_id)
        return str(row.state) if row else ""

    return look


def _length(done: Sequence[object]) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        return len(done)

    return look


async def test_a_subscriber_reads_as_soon_as_it_is_notified(
    engine: AsyncEngine, database_url: str
) -> None:
    stop, listener = asyncio.Event(), Listener(driver_url(database_url))
    reports, now = list[str](), ["at first"]

    async def look() -> None:
        reports.append(now[0])

    loop = Loop(listener=listener, stop=stop)
    loop_task = asyncio.create_task(loop.run_on_notice("topic", 600.0, "test", look))
    await waiting.until(_length(reports), lambda n: n == 1)
    listening = asyncio.create_task(listener.run())
    # It looks again because it missed notices before it listened.
    await waiting.until(_length(reports), lambda n: n == 2)
    now[0] = "when told"
    async with engine.begin() as conn:
        await notify.notify(conn, "topic")
    await waiting.until(_length(reports), lambda n: n == 3)
    stop.set()
    listening.cancel()
    await asyncio.gather(loop_task, listening, return_exceptions=True)

    assert reports[-1] == "when told"
