"""When nodes that hear no news are given fresh grants."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from service.operations.nodes.grants import Granter
from service.storage.fake import MemoryStore

BOOT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize("hours", [0.5, 1, 24, 168])
def test_between_two_renewals_of_one_that_polls_lies_never_more_than_an_hour_or_an_eighth(
    hours: float,
) -> None:
    life, poll = timedelta(hours=hours), timedelta(seconds=20)
    nowhere = create_async_engine("postgresql+psycopg://nobody@localhost:1/none")
    granter = Granter(engine=nowhere, store=MemoryStore(), lifetime=life)
    polls = [BOOT + poll * n for n in range(1, 2 * life // poll)]
    renewed = [at for at in polls if granter.is_renewal_minute(BOOT, at)]
    between = [later - at for at, later in pairwise(renewed)]

    assert life / 2 < renewed[0] - BOOT <= life / 2 + 2 * poll
    assert max(between) <= min(timedelta(hours=1), life / 8) + poll
    assert len(renewed) <= len(polls) / 2
    assert hours < 24 or len(renewed) < len(polls) / 30
