"""A strike hits the item it names, and a strike that missed does not count as a kept promise."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core.batching import Batcher
from tests.chaos import lives
from tests.chaos.points import FEW, Share, Strike
from tests.scenario import crew, worlds
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import Scenario
from tests.scenario.seams import Harm, Hook, Point

DEADLOCK = Strike("batch evicted", 1, Point("commit", 1, batch=True), Harm.DEADLOCK, Harm.FAILS)


@pytest.mark.parametrize("second_harm", [Harm.FAILS, Harm.LATE])
async def test_after_a_deadlock_the_second_of_the_batch_is_struck_whatever_is_done_between(
    second_harm: Harm,
) -> None:
    hook = Hook(at=1, harm=Harm.DEADLOCK, second_harm=second_harm)
    struck = await _lived(hook, ["one", "two", "three"])

    assert struck == "two"
    assert hook.struck


@pytest.mark.parametrize("harm", [Harm.FAILS, Harm.LATE])
async def test_a_strike_in_a_batch_hits_the_named_one(
    harm: Harm,
) -> None:
    hook = Hook(aim=Point("commit one", 7, batch=False, nth=2), harm=harm)
    commits = ("two", "one", "two", "two", "one", "one")
    struck = [n for n, name in enumerate(commits) if await _is_struck(hook, name)]

    assert struck == [4]
    assert [p.nth for p in hook.points] == [1, 1, 2, 3, 2, 3]


async def test_the_tests_own_connection_survives_the_end_of_the_replicas_connections(
    engine: AsyncEngine, database_url: str
) -> None:
    async with worlds.a_world(engine, database_url) as world:
        scenario = Scenario(world, PLAYS["undisturbed"])
        (job,) = scenario.jobs
        await job.submit()
        await asyncio.gather(*(_ask(engine) for _ in range(3)))
        async with world.engine.begin() as conn:
            await conn.execute(crew.TERMINATE)
        await job.check_promises()
        with pytest.raises(OperationalError):
            await _ask(engine)


async def test_without_a_batch_there_is_no_second() -> None:
    hook = Hook(at=1, harm=Harm.DEADLOCK, second_harm=Harm.FAILS)
    await _lived(hook, ["one"])
    await _lived(hook, ["two", "three"])

    assert not hook.struck


def test_a_strike_that_missed_is_not_recorded_as_unbroken(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    lives.record("missed", None, keep)
    lives.record("unbroken", [], keep)
    lives.record("broken", ["a promise"], keep)

    assert lives.unbroken_lives(keep) == {"unbroken"}
    assert [json.loads(line)["life"] for line in keep.read_text().splitlines()] == [
        "unbroken",
        "broken",
    ]


def test_a_kind_of_strike_that_mostly_missed_was_not_tried() -> None:
    share = Share()
    for _ in range(FEW):
        share.count(DEADLOCK, None)
        share.count(DEADLOCK, [])
    assert share.failures() == []

    share.count(DEADLOCK, None)
    assert share.failures() == [f"most strikes missed: {DEADLOCK.kind}"]
    assert share.describe_misses() == [f"missed {FEW + 1} of {2 * FEW + 1}: {DEADLOCK.kind}"]


async def _is_struck(hook: Hook, name: str) -> bool:
    before = hook.struck
    work = asyncio.create_task(_commit(hook, name))
    stopped = asyncio.create_task(hook.stopped.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    struck = hook.struck and not before
    hook.stalled.clear()
    hook.stopped.clear()
    hook.released.set()
    await asyncio.gather(work, return_exceptions=True)
    return struck


async def _commit(hook: Hook, name: str) -> None:
    await hook.end_point(
        await hook.begin_point(f"commit {name}", await hook.begin_transaction(name))
    )


async def _ask(engine: AsyncEngine) -> None:
    async with engine.connect() as conn:
        await conn.execute(text("select pg_sleep(0.01)"))  # so that each opens a connection


async def _lived(hook: Hook, items: Sequence[str]) -> str:
    """Process items in one batch, each with an effect after its commit; return the one struck."""
    at_work = ""

    async def work(taken: Sequence[str]) -> Sequence[str]:
        nonlocal at_work
        at_work = taken[0]
        number = await hook.begin_point("commit", await hook.begin_transaction())
        await hook.end_point(number)
        await hook.end_point(await hook.begin_point("delete elsewhere"))
        return taken

    async def wake() -> None:
        await hook.stopped.wait()
        stalled.append(at_work)
        hook.released.set()

    stalled: list[str] = []
    waker, together = asyncio.create_task(wake()), Batcher(work)
    results = await asyncio.gather(*map(together.do, items), return_exceptions=True)
    waker.cancel()
    failed = [
        item for item, result in zip(items, results, strict=True) if isinstance(result, Exception)
    ]
    return "".join(stalled + failed)
