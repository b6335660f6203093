"""What a choice between offerings learns from how earlier requests were answered."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.placement.capacity_history import CapacityHistory, RequestOutcome
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OTHER = replace(SPOT, region="northeurope")


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def granted(
    minutes: float, evicted: float | None = None, nodes: int = 2, **changes: object
) -> RequestOutcome:
    """Machines that were asked for so many minutes ago, and given."""
    outcome = RequestOutcome(
        offering=SPOT, job_id="job", nodes=nodes, at=ago(minutes), granted=True
    )
    evicted_at = None if evicted is None else ago(evicted)
    return replace(outcome, evicted_at=evicted_at, **changes)  # type: ignore[arg-type]  # a table's rows


def refused(minutes: float, **changes: object) -> RequestOutcome:
    return replace(granted(minutes, **changes), granted=False)  # type: ignore[arg-type]


def past(*answers: RequestOutcome) -> CapacityHistory:
    return CapacityHistory.of(answers, [SPOT, OTHER], 2, NOW)


@pytest.mark.parametrize(
    ("answers", "since"),
    [
        ([granted(50), granted(40)], 50),
        ([granted(50), granted(45)], None),
        ([granted(55), granted(45)], 55),
        ([granted(56), granted(46)], None),
        ([granted(50)], None),
        ([granted(50), granted(40, nodes=1)], None),
        ([granted(50), refused(45), granted(40)], None),
        ([refused(60), granted(50), granted(40)], 50),
        ([granted(50, evicted=45), granted(40), granted(30)], 40),
        ([granted(50, outlived_at=ago(42)), granted(40), granted(30)], 40),
        ([granted(50), granted(40, job_id="another")], 50),
        ([granted(50), granted(40, offering=OTHER)], None),
    ],
    ids=[
        "two signals ten minutes apart",
        "two signals at once are one",
        "the last signal is just fresh",
        "the last signal is stale",
        "one signal",
        "too few machines are no signal",
        "a refusal between them",
        "a refusal before both",
        "an eviction takes the first signal away",
        "so does one that the machines outlived",
        "signals are those of all jobs",
        "each offering has its own signals",
    ],
)
def test_an_offering_that_gave_machines_twice_lately_gives_them_again(
    answers: list[RequestOutcome], since: float | None
) -> None:
    assert past(*answers).granted_since.get(SPOT) == (None if since is None else ago(since))


@pytest.mark.parametrize(
    ("later", "again", "hops"),
    [
        ([], (0, 0), (1, 0)),
        ([granted(60)], (1, 1), (1, 0)),
        ([granted(60, offering=OTHER)], (1, 1), (1, 1)),
        ([granted(50, offering=OTHER)], (1, 1), (1, 1)),
        ([granted(49, offering=OTHER)], (1, 0), (1, 0)),
        ([granted(61, offering=OTHER)], (0, 0), (1, 0)),
        ([refused(55, offering=OTHER)], (1, 0), (1, 0)),
        ([refused(58), granted(51, offering=OTHER)], (1, 1), (1, 1)),
        ([granted(55, offering=OTHER, job_id="another")], (0, 0), (1, 0)),
    ],
    ids=[
        "nobody asked again",
        "the same offering accepted",
        "another offering accepted at once",
        "just within ten minutes",
        "later than that",
        "asked before the eviction",
        "refused",
        "refused first, then accepted",
        "another job's request",
    ],
)
def test_what_follows_an_eviction_is_counted(
    later: list[RequestOutcome], again: tuple[int, int], hops: tuple[int, int]
) -> None:
    history = past(granted(120, evicted=60), *later)

    assert (history.regrants, history.hops) == (again, hops)


def test_an_offering_was_down_at_its_last_refusal_or_eviction() -> None:
    history = past(granted(120, evicted=60), refused(90), refused(30, offering=OTHER))

    assert history.last_unavailable == {SPOT: ago(60), OTHER: ago(30)}
    assert history.refused_at == ago(30)
