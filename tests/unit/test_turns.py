"""When a job that waits for Spot cores is likely to be let in."""

from dataclasses import replace
from datetime import UTC, datetime

from service.domain.admission import Code, Standing, Want
from service.domain.forecast import ToCome
from service.domain.turns import MANY, Asks, Holds, Turn, is_foreseen, turn, unforeseen

HOUR = ToCome(p10=3000.0, p50=3600.0, p90=4200.0)
DAY = ToCome(p10=80_000.0, p50=86_400.0, p90=90_000.0)
WAITS = Standing(
    since=datetime(2026, 11, 20, tzinfo=UTC), position=1, code=Code.CORES, why="it needs cores"
)


def asks(cores: int, *regions: str, lasts: ToCome = HOUR) -> Asks:
    wants = tuple(Want(region=region, cores=cores) for region in regions or ("eastus",))
    return Asks(wants=wants, lasts=lasts)


def holds(cores: int, ends: ToCome, region: str = "eastus") -> Holds:
    return Holds(region=region, cores=cores, ends=ends)


def test_who_is_first_is_let_in_when_enough_of_our_jobs_have_ended() -> None:
    held = [holds(96, HOUR), holds(96, DAY)]

    assert turn([asks(96)], {"eastus": 0}, held) == Turn(after=HOUR)
    assert turn([asks(192)], {"eastus": 0}, held) == Turn(after=DAY)
    assert turn([asks(100)], {"eastus": 4}, held) == Turn(after=HOUR)
    assert turn([asks(192)], {"eastus": -96}, held).after is None  # the quota was lowered


def test_the_nearest_end_in_any_region_that_it_may_take_counts() -> None:
    held = [holds(96, DAY), holds(96, HOUR, "westus")]

    found = turn([asks(96, "eastus", "westus")], {"eastus": 0, "westus": 0}, held)

    assert found == Turn(after=HOUR)


def test_who_is_ahead_takes_its_part_first_and_holds_it_for_as_long_as_it_lasts() -> None:
    held = [holds(96, HOUR)]
    found = turn([asks(96, lasts=DAY), asks(96)], {"eastus": 0}, held)

    assert found.after == ToCome(
        p10=HOUR.p10 + DAY.p10, p50=HOUR.p50 + DAY.p50, p90=HOUR.p90 + DAY.p90
    )


def test_what_does_not_fit_is_passed_by() -> None:
    held = [holds(96, HOUR), holds(96, DAY)]

    assert turn([asks(192), asks(96)], {"eastus": 0}, held).after == HOUR


def test_nothing_is_promised_of_what_others_in_the_subscription_hold() -> None:
    found = turn([asks(192)], {"eastus": 0}, [holds(96, HOUR)])

    assert found.after is None
    assert "Others in the subscription" in found.why


def test_nothing_is_promised_where_too_many_hold_it() -> None:
    assert turn([asks(1)], {"eastus": 0}, [holds(1, HOUR)] * (MANY + 1)).after is None


def test_only_the_first_in_the_queue_for_cores_are_foreseen_and_others_are_told_why_not() -> None:
    far, project = replace(WAITS, position=11), replace(WAITS, code=Code.GPUS)
    fresh = replace(WAITS, code=Code.LOOK, position=None)

    assert [is_foreseen(s) for s in (WAITS, far, project, fresh)] == [True, False, False, False]
    assert unforeseen(fresh) is None
    told = [unforeseen(s) for s in (far, project, replace(WAITS, code=Code.NEVER))]
    assert [t.after if t else 0 for t in told] == [None] * 3
    assert len({t.why for t in told if t}) == 3
