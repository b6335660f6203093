"""Every promise holds in every life, whatever is killed, lost, doubled, late, evicted or requested.

The promises are checked in `promises.py`, `checkpoint_promises.py` and `random_life.py`.
"""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.serving import event_loop
from tests.scenario import worlds

LIVES, LONG_LIVES = 12, 30  # of a block: in `make test`, in `make long`
LONG_BLOCKS = 10


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """Yield the URL of a PostgreSQL that may be shot."""
    with worlds.database() as url:
        yield url


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "block",
    [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, LONG_BLOCKS))],
)
def test_every_promise_holds_in_every_life(own_url: str, block: int) -> None:
    lives = LONG_LIVES if block else LIVES
    with asyncio.Runner(loop_factory=event_loop()) as runner:

        @settings(max_examples=lives, database=None, suppress_health_check=list(HealthCheck))
        @given(seed=st.integers(0, 2**32))
        def life(seed: int) -> None:
            assert runner.run(worlds.live_at_random(own_url, seed * LONG_BLOCKS + block)) == []

        life()
