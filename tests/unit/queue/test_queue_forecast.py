"""When a job that waits for Spot cores is likely to be let in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from service.domain.planning.forecast import RemainingTime
from service.domain.queue.admission import (
    RESERVATION_DELAY,
    QueueStanding,
    RegionRequest,
    WaitReason,
)
from service.domain.queue.queue_forecast import (
    AdmissionForecast,
    CoreHold,
    QueueEntry,
    explain_no_forecast,
    forecast_admission,
    is_forecastable,
)

SOON = RemainingTime(p10=500.0, p50=600.0, p90=700.0)
HOUR = RemainingTime(p10=3000.0, p50=3600.0, p90=4200.0)
DAY = RemainingTime(p10=80_000.0, p50=86_400.0, p90=90_000.0)
NOW = datetime(2026, 11, 20, 0, 7, tzinfo=UTC)
WAITS = QueueStanding(since=NOW, position=1, code=WaitReason.CORES, why="it needs cores")


def asks(
    cores: int,
    *regions: str,
    lasts: RemainingTime = HOUR,
    since: datetime = NOW,
    project: str = "ours",
) -> QueueEntry:
    wants = tuple(RegionRequest(region=region, cores=cores) for region in regions or ("eastus",))
    return QueueEntry(project_id=project, since=since, wants=wants, duration=lasts)


def holds(
    cores: int, ends: RemainingTime, region: str = "eastus", project: str = "ours"
) -> CoreHold:
    return CoreHold(project_id=project, region=region, cores=cores, ends=ends)


def forecast(
    queue: list[QueueEntry], free: dict[str, int], core_holds: list[CoreHold]
) -> AdmissionForecast:
    return forecast_admission(queue, free, core_holds, NOW)


def test_who_is_first_is_let_in_when_enough_of_our_jobs_have_ended() -> None:
    core_holds = [holds(96, HOUR), holds(96, DAY)]

    assert forecast([asks(96)], {"eastus": 0}, core_holds) == AdmissionForecast(after=HOUR)
    assert forecast([asks(192)], {"eastus": 0}, core_holds) == AdmissionForecast(after=DAY)
    assert forecast([asks(100)], {"eastus": 4}, core_holds) == AdmissionForecast(after=HOUR)
    assert forecast([asks(192)], {"eastus": -96}, core_holds).after is None  # the quota was lowered


def test_the_nearest_end_in_any_region_that_it_may_take_counts() -> None:
    core_holds = [holds(96, DAY), holds(96, HOUR, "westus")]

    admission = forecast([asks(96, "eastus", "westus")], {"eastus": 0, "westus": 0}, core_holds)

    assert admission == AdmissionForecast(after=HOUR)


def test_who_is_ahead_takes_its_part_first_and_holds_it_for_as_long_as_it_lasts() -> None:
    core_holds = [holds(96, HOUR)]
    admission = forecast([asks(96, lasts=DAY), asks(96)], {"eastus": 0}, core_holds)

    assert admission.after == RemainingTime(
        p10=HOUR.p10 + DAY.p10, p50=HOUR.p50 + DAY.p50, p90=HOUR.p90 + DAY.p90
    )


def test_what_does_not_fit_is_passed_by_until_it_has_waited_long() -> None:
    core_holds = [holds(96, SOON), holds(96, DAY)]
    old_entry = asks(192, since=NOW - RESERVATION_DELAY)
    by_then = asks(192, since=NOW - RESERVATION_DELAY + timedelta(seconds=SOON.p10))

    assert forecast([asks(192), asks(96)], {"eastus": 0}, core_holds).after == SOON
    after = forecast([old_entry, asks(96)], {"eastus": 0}, core_holds).after
    assert after is not None
    assert after.p50 == DAY.p50 + HOUR.p50
    assert forecast([by_then, asks(96)], {"eastus": 0}, core_holds).after == after


def test_who_fits_behind_a_larger_job_that_waits_longer_is_not_let_in_now() -> None:
    big = asks(192, since=NOW - 2 * RESERVATION_DELAY)

    admission = forecast([big, asks(96)], {"eastus": 96}, [holds(104, HOUR)])

    assert admission.after is not None
    assert admission.after.p50 == HOUR.p50 + HOUR.p50


def test_only_the_region_that_lacks_least_of_what_it_can_ever_have_is_kept() -> None:
    core_holds = [holds(96, DAY), holds(96, DAY), holds(288, DAY, "westus")]
    free = {"eastus": 96, "westus": 96}
    big = asks(384, "eastus", "westus", since=NOW - RESERVATION_DELAY)  # eastus never has so many

    assert forecast([big, asks(96)], free, core_holds).after == RemainingTime(
        p10=0.0, p50=0.0, p90=0.0
    )
    after = forecast([big, asks(96, "westus")], free, core_holds).after
    assert after is not None
    assert after.p50 == DAY.p50 + HOUR.p50
    never = asks(999, since=NOW - RESERVATION_DELAY)
    assert forecast([never, asks(96)], free, core_holds).after == RemainingTime(
        p10=0.0, p50=0.0, p90=0.0
    )


def test_other_projects_ends_are_told_in_quarters_of_an_hour() -> None:
    admission = forecast([asks(96)], {"eastus": 0}, [holds(96, HOUR, project="theirs")]).after
    ahead = forecast([asks(96, project="theirs"), asks(96)], {"eastus": 0}, [holds(96, HOUR)]).after

    assert admission == RemainingTime(p10=3180.0, p50=4080.0, p90=4980.0)  # 1:00, 1:15 and 1:30
    assert ahead is not None
    assert (NOW.timestamp() + ahead.p50) % 900 == 0


def test_nothing_is_promised_of_what_others_hold_or_to_whom_others_go_before() -> None:
    admission = forecast([asks(192)], {"eastus": 0}, [holds(96, HOUR)])

    assert admission.after is None
    assert "Others in the subscription" in admission.why

    queue, foreign = [asks(96)], [holds(96, HOUR, project="theirs")]
    behind = forecast_admission(queue, {"eastus": 96}, foreign, NOW, passed_over=True)
    assert behind.after is None
    assert "goes first" in behind.why
    assert (
        forecast_admission(queue, {"eastus": 0}, foreign, NOW, passed_over=True).after is not None
    )


def test_only_the_first_in_the_queue_for_cores_are_foreseen_and_others_are_told_why_not() -> None:
    far, project = replace(WAITS, position=11), replace(WAITS, code=WaitReason.GPUS)
    fresh = replace(WAITS, code=WaitReason.PENDING, position=None)

    assert [is_forecastable(s) for s in (WAITS, far, project, fresh)] == [True, False, False, False]
    assert explain_no_forecast(fresh) is None
    forecasts = [
        explain_no_forecast(s) for s in (far, project, replace(WAITS, code=WaitReason.NEVER))
    ]
    assert [t.after if t else 0 for t in forecasts] == [None] * 3
    assert len({t.why for t in forecasts if t}) == 3
