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


def given(
    minutes: float, evicted: float | None = None, nodes: int = 2, **more: object
) -> RequestOutcome:
    """Machines that were asked for so many minutes ago, and given."""
    made = RequestOutcome(offering=SPOT, job_id="job", nodes=nodes, at=ago(minutes), granted=True)
    lost = None if evicted is None else ago(evicted)
    return replace(made, evicted_at=lost, **more)  # type: ignore[arg-type]  # a table's rows


def refused(minutes: float, **more: object) -> RequestOutcome:
    return replace(given(minutes, **more), granted=False)  # type: ignore[arg-type]


def past(*answers: RequestOutcome) -> CapacityHistory:
    return CapacityHistory.of(answers, [SPOT, OTHER], 2, NOW)


@pytest.mark.parametrize(
    ("answers", "since"),
    [
        ([given(50), given(40)], 50),
        ([given(50), given(45)], None),
        ([given(55), given(45)], 55),
        ([given(56), given(46)], None),
        ([given(50)], None),
        ([given(50), given(40, nodes=1)], None),
        ([given(50), refused(45), given(40)], None),
        ([refused(60), given(50), given(40)], 50),
        ([given(50, evicted=45), given(40), given(30)], 40),
        ([given(50, outlived_at=ago(42)), given(40), given(30)], 40),
        ([given(50), given(40, job_id="another")], 50),
        ([given(50), given(40, offering=OTHER)], None),
    ],
    ids=[
        "two signs ten minutes apart",
        "two signs at once are one",
        "the last sign is just fresh",
        "the last sign is stale",
        "one sign",
        "too few machines are no sign",
        "a refusal between them",
        "a refusal before both",
        "an eviction takes the first sign away",
        "so does one that the machines outlived",
        "signs are those of all jobs",
        "each offering has its own signs",
    ],
)
def test_an_offering_that_gave_machines_twice_lately_gives_them_again(
    answers: list[RequestOutcome], since: float | None
) -> None:
    assert past(*answers).granted_since.get(SPOT) == (None if since is None else ago(since))


@pytest.mark.parametrize(
    ("then", "again", "hops"),
    [
        ([], (0, 0), (1, 0)),
        ([given(60)], (1, 1), (1, 0)),
        ([given(60, offering=OTHER)], (1, 1), (1, 1)),
        ([given(50, offering=OTHER)], (1, 1), (1, 1)),
        ([given(49, offering=OTHER)], (1, 0), (1, 0)),
        ([given(61, offering=OTHER)], (0, 0), (1, 0)),
        ([refused(55, offering=OTHER)], (1, 0), (1, 0)),
        ([refused(58), given(51, offering=OTHER)], (1, 1), (1, 1)),
        ([given(55, offering=OTHER, job_id="another")], (0, 0), (1, 0)),
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
    then: list[RequestOutcome], again: tuple[int, int], hops: tuple[int, int]
) -> None:
    found = past(given(120, evicted=60), *then)

    assert (found.regrants, found.hops) == (again, hops)


def test_an_offering_was_down_at_its_last_refusal_or_eviction() -> None:
    found = past(given(120, evicted=60), refused(90), refused(30, offering=OTHER))

    assert found.last_unavailable == {SPOT: ago(60), OTHER: ago(30)}
    assert found.refused_at == ago(30)
