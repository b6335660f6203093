"""Random kills, network cuts and clock skews while several replicas serve one play.

The same seed gives the same faults. IDs are random, so events of the same time may change order.
"""

import random
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from tests.scenario import worlds
from tests.scenario.crew import APART, HELD_UP, Crew
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import SLACK, Scenario


async def run(engine: AsyncEngine, url: str, seed: int) -> list[str]:
    """Run a play in this storm; return the broken promises."""
    rng = random.Random(seed)
    play = rng.choice(sorted(PLAYS))
    async with worlds.a_world(engine, url) as world:
        scenario = Scenario(world, PLAYS[play], dice=rng)
        restart = partial(worlds.restart, world.engine)
        crew = Crew(world, scenario.cloud, rng, restart, rate_limited=scenario.play.rate_limited)
        scenario.be_served_by(crew, APART, SLACK + HELD_UP)
        scenario.disturb = crew.disturb
        return [f"{play}: {line}" for line in await scenario.run()]
