"""A replica is struck at a point of a whole life, and every promise is kept all the same.

Here a few points; `make chaos` strikes at all of them, in every way.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.chaos import places, points, storms
from tests.chaos.places import all_places
from tests.chaos.plays import PLAYS
from tests.chaos.points import Share, Strike
from tests.chaos.seams import Harm

STORMS = (*range(1, 21), 35, 52)  # 35 had no end once; 52 met slow commits and a cut at once


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """A server that may be shot: what it has committed is there when it comes back."""
    with points.database() as url:
        yield url


@pytest.fixture
async def own(own_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on it."""
    async with points.an_engine(own_url) as engine:
        yield engine


def test_every_place_of_the_code_that_has_an_effect_is_met_by_a_play() -> None:
    """Where a place is new: give a play a reason to come there, then `python -m tests.chaos
    --harm --storms 0 --record`.
    """
    known = places.met()

    assert all_places() - known.keys() == set()
    assert set(known.values()) <= PLAYS.keys()


def test_what_a_play_has_met_is_found_in_the_text_as_well() -> None:
    """Else a new place of that kind would be asked of no play, or met.txt is stale."""
    time = "reconciler/rate_limit.py time"  # of create and delete, as EXCUSED says
    awaited_elsewhere = {f"create {time}", f"delete {time}"}

    assert places.met().keys() - all_places() == awaited_elsewhere


async def test_a_life_keeps_every_promise_though_a_create_is_lost_killed_or_late(
    engine: AsyncEngine, database_url: str
) -> None:
    found = await points.points_of(engine, database_url, "cancelled early")
    number, point = next((n, p) for n, p in enumerate(found, 1) if p.what.startswith("create rec"))

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
    found = await points.points_of(own, own_url, play)

    assert found
    share = Share()
    for strike in list(points.strikes(play, enumerate(found, 1), harm))[::15]:
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
    assert await storms.weathered(own, own_url, seed) == []
