"""Random kills, cuts and clocks: several replicas serve the life of one play.

The same seed gives the same faults; ids are random, so what has the same time may come in another
order.
"""

import random
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from tests.scenario import worlds
from tests.scenario.crew import APART, HELD_UP, Crew
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import SLACK, Scenario


async def live_through(engine: AsyncEngine, url: str, seed: int) -> list[str]:
    """Live a play in this storm; return the promises that were broken."""
    rng = random.Random(seed)
    play = rng.choice(sorted(PLAYS))
    async with worlds.a_world(engine, url) as world:
        scenario = Scenario(world, PLAYS[play], dice=rng)
        restart = partial(worlds.restart, world.engine)
        crew = Crew(world, scenario.cloud, rng, restart, rate_limited=scenario.play.rate_limited)
        scenario.be_served_by(crew, APART, SLACK + HELD_UP)
        scenario.disturb = crew.disturb
        return [f"{play}: {line}" for line in await scenario.run()]
