"""A replica is struck at a point of a whole life, and every promise is kept all the same.

Here a few points; `make chaos` strikes at all of them, in every way.
"""

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.chaos import points, storms
from tests.chaos.places import all_places
from tests.chaos.plays import PLAYS
from tests.chaos.points import Strike
from tests.chaos.seams import Harm

STORMS = range(1, 21)


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
    engine: AsyncEngine, database_url: str, play: str, harm: Harm
) -> None:
    found = await points.points_of(engine, database_url, play)

    assert found
    for number, point in list(enumerate(found, 1))[::15]:
        strike = Strike(play, number, point, harm)
        assert await points.lived(engine, database_url, strike) == [], str(strike)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", STORMS)
async def test_a_life_keeps_every_promise_in_a_storm(
    engine: AsyncEngine, database_url: str, seed: int
) -> None:
    assert await storms.weathered(engine, database_url, seed) == []
