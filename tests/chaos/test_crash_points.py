"""A fault at any point of a whole life breaks no promise.

Tests try a few points; `make chaos` tries all of them with every fault.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.chaos import places, points, storms
from tests.chaos.places import all_places
from tests.chaos.points import Share, Strike
from tests.scenario import worlds
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import Scenario, job_events
from tests.scenario.seams import Harm, Hook, Point

STORMS = range(1, 23)  # seeds


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """Yield the URL of a server that may be killed; its commits survive."""
    with worlds.database() as url:
        yield url


@pytest.fixture
async def own(own_url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine on that server."""
    async with worlds.an_engine(own_url) as engine:
        yield engine


def test_a_play_reaches_every_place_of_the_code_that_has_an_effect() -> None:
    """Extend a play to reach a new place, then run the command in `places.py`."""
    recorded = places.reached()

    assert all_places() - recorded.keys() == set()
    assert set(recorded.values()) <= PLAYS.keys()


def test_the_text_search_finds_every_place_that_a_play_reached() -> None:
    """Otherwise no play has to reach a new place of that kind, or reached.txt is stale."""
    timed = "reconciler/cloud/rate_limit.py _make_measured"  # it makes `RateLimitedRegion`'s calls
    awaited_elsewhere = {f"create {timed}", f"delete {timed}"}

    assert places.reached().keys() - all_places() == awaited_elsewhere


async def test_a_life_keeps_every_promise_though_a_create_is_lost_killed_or_late(
    engine: AsyncEngine, database_url: str
) -> None:
    all_points = await points.points_of(engine, database_url, "cancelled early")
    number, point = next(
        (n, p) for n, p in enumerate(all_points, 1) if p.what.startswith("create rec")
    )

    assert point.what in all_places()
    for harm in (Harm.AFTER, Harm.BELATED):
        strike = Strike("cancelled early", number, point, harm)
        assert await points.run_struck(engine, database_url, strike) == [], str(strike)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("harm", Harm)
@pytest.mark.parametrize("play", PLAYS)
async def test_a_life_keeps_every_promise_wherever_a_replica_is_struck(
    own: AsyncEngine, own_url: str, play: str, harm: Harm
) -> None:
    all_points = await points.points_of(own, own_url, play)

    assert all_points
    share = Share()
    for strike in list(points.strikes(play, enumerate(all_points, 1), harm))[::15]:
        broken = await points.run_struck(own, own_url, strike)
        assert not broken, str(strike)
        share.count(strike, broken)
    assert share.failures() == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", STORMS)
async def test_a_life_keeps_every_promise_in_a_storm(
    own: AsyncEngine, own_url: str, seed: int
) -> None:
    assert await storms.run(own, own_url, seed) == []


@pytest.mark.long  # a whole life for each of its points
@pytest.mark.timeout(900)
async def test_a_life_ends_the_same_wherever_the_service_is_killed(
    engine: AsyncEngine, database_url: str
) -> None:
    async def life(at: int) -> tuple[list[Point], dict[str, object]]:
        async with worlds.a_world(engine, database_url) as world:
            scenario = Scenario(world, PLAYS["evicted"], Hook(at=at))
            assert await scenario.run() == [], at
            return scenario.hook.points, await job_events(scenario.jobs[0])

    all_points, undisturbed = await life(0)

    for number, point in enumerate(all_points, 1):
        _, events = await life(number)
        assert events == undisturbed, f"killed after {point.what}"
