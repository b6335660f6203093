"""Each play without faults keeps every promise and ends in time.

The rows are exact where a fault would change them: attempts, generations, and rounds of ten
seconds. A trainer that waits for an evicted peer, a late cancel or machines given up too late take
more rounds.
"""

from dataclasses import dataclass

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.scenario import worlds
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import Scenario, job_events


@dataclass(frozen=True)
class Ends:
    """How a play ends: its attempts, its generations, and the most rounds that it may take."""

    attempts: int
    generations: int
    rounds: int


ENDS = {
    "undisturbed": Ends(attempts=1, generations=1, rounds=16),
    "evicted": Ends(attempts=2, generations=2, rounds=23),
    "noticed": Ends(attempts=2, generations=2, rounds=23),
    "restarted": Ends(attempts=1, generations=2, rounds=19),
    "paused": Ends(attempts=2, generations=2, rounds=25),
    "cancelled": Ends(attempts=1, generations=1, rounds=13),
    "cancelled early": Ends(attempts=1, generations=0, rounds=8),
    "refused": Ends(attempts=3, generations=1, rounds=40),
    "elastic": Ends(attempts=1, generations=3, rounds=20),
    "non_retryable": Ends(attempts=1, generations=1, rounds=12),
    "silent": Ends(attempts=2, generations=2, rounds=36),
    "misconfigured": Ends(attempts=1, generations=1, rounds=23),
    "checkpoint damaged": Ends(attempts=2, generations=3, rounds=27),
    "image refused": Ends(attempts=1, generations=0, rounds=9),
    "GPU broken": Ends(attempts=1, generations=2, rounds=23),
}


@pytest.mark.parametrize("play", ENDS)
async def test_a_play_keeps_every_promise_and_ends_in_time(
    engine: AsyncEngine, database_url: str, play: str
) -> None:
    ends = ENDS[play]
    async with worlds.a_world(engine, database_url) as world:
        scenario = Scenario(world, PLAYS[play])
        assert await scenario.run() == []
        (job,) = scenario.jobs
        events = await job_events(job)

    assert len(job.attempts) == ends.attempts
    assert events["generations"] == list(range(1, ends.generations + 1))
    assert scenario.rounds <= ends.rounds
