"""A replica is struck at a point of a whole life, and every promise is kept all the same.

Here a few points; `make chaos` strikes at all of them, in every way.
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

STORMS = (*range(1, 21), 35, 52)  # 35 had no end once; 52 met slow commits and a cut at once


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """Yield the URL of a server that may be shot; what is committed outlives that."""
    with worlds.database() as url:
        yield url


@pytest.fixture
async def own(own_url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine on it."""
    async with worlds.an_engine(own_url) as engine:
        yield engine


def test_every_place_of_the_code_that_has_an_effect_is_met_by_a_play() -> None:
    """Give a play a reason to come to a new place, then run the command of `places.py`."""
    recorded = places.met()

    assert all_places() - recorded.keys() == set()
    assert set(recorded.values()) <= PLAYS.keys()


def test_what_a_play_has_met_is_found_in_the_text_as_well() -> None:
    """Else a new place of that kind would be asked of no play, or met.txt is stale."""
    timed = "reconciler/cloud/rate_limit.py _make_measured"  # it makes `RateLimitedRegion`'s calls
    awaited_elsewhere = {f"create {timed}", f"delete {timed}"}

    assert places.met().keys() - all_places() == awaited_elsewhere


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
        assert await points.lived(engine, database_url, strike) == [], str(strike)


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
        broken = await points.lived(own, own_url, strike)
        assert not broken, str(strike)
        share.count(strike, broken)
    assert share.too_many() == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", STORMS)
async def test_a_life_keeps_every_promise_in_a_storm(
    own: AsyncEngine, own_url: str, seed: int
) -> None:
    assert await storms.live_through(own, own_url, seed) == []


@pytest.mark.long  # a whole life for each of its points
@pytest.mark.timeout(900)
async def test_a_life_ends_the_same_wherever_the_service_is_killed(
    engine: AsyncEngine, database_url: str
) -> None:
    async def told_of(at: int) -> tuple[list[Point], dict[str, object]]:
        async with worlds.a_world(engine, database_url) as world:
            scenario = Scenario(world, PLAYS["evicted"], Hook(at=at))
            assert await scenario.run() == [], at
            return scenario.hook.points, await job_events(scenario.jobs[0])

    all_points, undisturbed = await told_of(0)

    for number, point in enumerate(all_points, 1):
        _, story = await told_of(number)
        assert story == undisturbed, f"killed after {point.what}"
