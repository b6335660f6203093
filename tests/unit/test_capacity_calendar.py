"""What a job would have cost at each hour of the last weeks."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from rekindle.cli.calendars import view
from service.api.calendars import _shown
from service.domain.capacity_calendar import CapacityCalendar, Slot, TooMuch, calendar, elsewhere
from service.domain.errors import InvalidRequest
from service.domain.option import Option
from service.domain.traces import Held, Place, Priced, Sight, Trace, Window
from service.operations.calendars import Record, lived
from service.operations.traces import Seen
from tests.unit.test_trial import option

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
PLACE = Place("eastus", "size")
JOB = replace(option("eastus", 1.0), total_steps=1440)  # four hours on two nodes


def nights(days: int, *, nodes: int = 2, seen: float = 1.0) -> Trace:
    """Capacity from midnight to eight, every hour a count."""
    counts = tuple(nodes if hour % 24 < 8 else 0 for hour in range(24 * days))
    return Trace(
        place=PLACE,
        begins=MONDAY,
        gap=timedelta(hours=1),
        counts=counts,
        seen=((0, int(seen * len(counts))),),
    )


def taken(
    traces: list[Trace], deadline_h: float | None = 8.0, job: Option = JOB
) -> CapacityCalendar:
    found = calendar([job], traces, None if deadline_h is None else deadline_h * 3600)
    assert found is not None
    return found


def text(found: CapacityCalendar) -> str:
    """What `rekindle simulate --calendar` says beside its table."""
    return "\n".join(line for line in view(_shown(found)) if isinstance(line, str))


def test_hours_with_capacity_are_cheaper_and_every_hour_keeps_its_deadline() -> None:
    found = taken([nights(8)])

    night, noon = found.cells[Slot(2, 1)], found.cells[Slot(2, 12)]
    assert night.dollars is not None
    assert noon.dollars is not None
    assert noon.dollars > 3 * night.dollars
    assert found.whole is not None
    assert (found.whole.in_time_pct, found.whole.unfinished_pct) == (100, 0)
    assert (len(found.cells), len(found.hours), found.doubt) == (168, 24, "")
    assert "Cheapest to begin at 0" in text(found)


def test_without_a_deadline_a_job_waits_for_the_night() -> None:
    found = taken([nights(8)], deadline_h=None)

    noon = found.cells[Slot(2, 12)]
    assert noon.hours == 12 + 4 + 1
    assert noon.dollars == found.cells[Slot(2, 1)].dollars
    assert noon.in_time_pct is None
    assert "Cheapest to begin at 00:00 UTC ($10.00), dearest at 04:00 ($12.00)." in text(found)


def test_a_calendar_of_a_plan_without_spot_machines_is_refused() -> None:
    window = Window(begins=MONDAY, ticks=1)
    seen = Seen(window=window, held={}, sights={})

    with pytest.raises(InvalidRequest, match="has no Spot machines") as refused:
        lived(Record(options=[JOB], places=[], seen=seen, prices={}), None)

    assert refused.value.code == "no_spot"


@pytest.mark.parametrize(("refused", "unfinished"), [((), 0), ((9,), 100)])
def test_capacity_that_was_held_is_enough_for_more_nodes_unless_some_was_ever_refused(
    refused: tuple[int, ...], unfinished: int
) -> None:
    window = Window(begins=MONDAY, ticks=24 * 8, gap=timedelta(hours=1))
    one = [Held(MONDAY + timedelta(hours=3), MONDAY + timedelta(hours=5), Decimal(1))]
    sights = [Sight(MONDAY + timedelta(hours=5), 1)]
    sights += [Sight(MONDAY + timedelta(hours=hour), 0) for hour in refused]
    seen = Seen(window=window, held={PLACE: one}, sights={PLACE: sights})

    record = Record(options=[JOB], places=[PLACE], seen=seen, prices={})
    found = lived(record, None)

    assert found.whole is not None
    assert round(found.whole.unfinished_pct, -1) == unfinished


def test_where_machines_are_always_to_be_had_the_hour_makes_no_difference() -> None:
    always = replace(nights(8), counts=(2,) * 24 * 8)

    assert "The hour of the day makes no difference" in text(taken([always], deadline_h=None))


def test_fewer_machines_than_the_job_needs_are_no_capacity() -> None:
    found = taken([nights(8, nodes=1)], deadline_h=None)

    assert found.whole is not None
    assert (found.whole.dollars, found.whole.unfinished_pct) == (None, 100)
    assert "Not done within two days of waiting: 100 %" in text(found)


def test_prices_that_were_recorded_count_from_the_hour_on_at_which_they_held() -> None:
    later = Priced(24, Decimal(3))
    found = taken([replace(nights(8), prices=(Priced(0, Decimal(1)), later))])

    monday, tuesday = found.cells[Slot(0, 1)], found.cells[Slot(1, 1)]
    assert monday.begins == 2
    assert tuesday.dollars == pytest.approx(3 * (found.cells[Slot(0, 0)].dollars or 0) / 2, rel=0.5)
    assert taken([nights(8)]).cells[Slot(1, 1)].dollars == pytest.approx((tuesday.dollars or 0) / 3)


@pytest.mark.parametrize(
    ("trace", "doubt"),
    [
        (nights(3), "has 3.0 days, and hours of the week need 7"),
        (nights(9, seen=0.1), "Only 10 % of the record was seen"),
        (replace(nights(1), counts=(2, 2)), "too short for even one life"),
    ],
)
def test_too_little_data_is_said(trace: Trace, doubt: str) -> None:
    found = taken([trace])

    assert doubt in found.doubt
    assert "Too little to go by." in text(found)
    assert "Cheapest" not in text(found)


def test_a_week_that_ends_within_a_tick_is_a_week() -> None:
    job = replace(JOB, total_steps=1449)  # ticks that no week is a multiple of
    counts = (2,) * 7 * 24 * 12
    week = replace(nights(7), gap=timedelta(minutes=5), counts=counts, seen=((0, len(counts)),))

    found = taken([week], job=job)

    assert found.ends - found.begins < timedelta(days=7)
    assert found.doubt == ""


def test_of_a_long_record_the_same_hours_of_every_day_are_lived_from() -> None:
    found = taken([nights(40)], deadline_h=None)

    begins = {slot: cell.begins for slot, cell in found.cells.items()}
    assert {slot.hour for slot in begins} == set(range(0, 24, 3))
    assert set(begins.values()) <= {5, 6}
    assert found.lives <= 336


def test_lives_that_take_long_begin_at_fewer_hours_of_every_day() -> None:
    always = replace(nights(120), counts=(2,) * 24 * 120)
    meter = (0.05 * n for n in itertools.count())  # seconds of computing

    found = calendar([JOB], [always], 14 * 24 * 3600.0, lambda: next(meter))

    assert found is not None
    assert {slot.hour for slot in found.cells} == {0}
    assert (found.lives, found.doubt) == (120 - 14, "")
    assert found.cut == "Only one of 24 hours was lived from: 8 s of computing were over."
    assert found.cut in text(found)


def test_what_time_left_out_is_not_taken_to_be_like_the_rest() -> None:
    always = replace(nights(40), counts=(2,) * 24 * 40)
    meter = (0.05 * n for n in itertools.count())

    in_a_hurry = calendar([JOB], [always], None, lambda: next(meter))
    at_leisure = taken([always], deadline_h=None)

    assert in_a_hurry is not None
    assert "Only one of 8 hours was lived from" in text(in_a_hurry)
    assert "Which of these hours it is makes no difference" in text(in_a_hurry)
    assert (at_leisure.cut, at_leisure.doubt) == ("", "")
    assert "The hour of the day makes no difference" in text(at_leisure)


def test_where_even_those_take_too_long_the_newest_are_lived() -> None:
    meter = (1.0 * n for n in itertools.count())

    found = calendar([JOB], [nights(40)], None, lambda: next(meter))

    assert found is not None
    assert {slot.hour for slot in found.cells} == {0}
    assert (found.lives, found.cut) == (8, "")
    assert "8 s of computing were over after 8 lives" in found.doubt


def test_a_short_job_is_no_dearer_in_a_calendar_with_a_looser_deadline() -> None:
    short = replace(JOB, total_steps=6, recovery_seconds=8.0)

    def price(days: float) -> float:
        whole = taken([nights(21)], deadline_h=24 * days, job=short).whole
        assert whole is not None
        assert whole.dollars is not None
        return whole.dollars

    assert price(4) == price(20)  # days; of 17 days on a life would need longer ticks


def test_a_life_that_is_far_too_long_is_refused_with_what_would_do() -> None:
    places = [f"r{n}" for n in range(16)]
    year = [replace(nights(182), place=Place(name, "size")) for name in places]

    with pytest.raises(TooMuch, match="16 regions follows a job for 104 days at most") as error:
        calendar([option(name, 1.0) for name in places], year, 150 * 24 * 3600.0)

    assert "this one is followed for 151." in str(error.value)
    assert "traces of at most 9 regions or a nearer deadline." in str(error.value)


def test_a_job_whose_work_is_far_too_long_is_told_of_no_deadline() -> None:
    places = [f"r{n}" for n in range(16)]
    year = [replace(nights(182), place=Place(name, "size")) for name in places]
    jobs = [replace(option(name, 1.0), total_steps=360 * 24 * 120) for name in places]

    with pytest.raises(TooMuch, match=r"Give it traces of at most 13 regions\.$"):
        calendar(jobs, year, None)


def test_a_record_that_no_life_fits_in_is_too_short_before_a_life_is_too_long() -> None:
    places = [f"r{n}" for n in range(16)]
    weeks = [replace(nights(28), place=Place(name, "size")) for name in places]

    found = calendar([option(name, 1.0) for name in places], weeks, 150 * 24 * 3600.0)

    assert found is not None
    assert "too short for even one life" in found.doubt


def test_only_the_time_that_all_traces_cover_counts() -> None:
    west = replace(
        nights(8), place=Place("westus", "size"), begins=MONDAY + timedelta(days=2, minutes=20)
    )
    found = calendar([JOB, option("westus", 1.0)], [nights(8), west], None)

    assert found is not None
    assert found.begins == west.begins
    assert found.ends == pytest.approx(MONDAY + timedelta(days=8), abs=timedelta(hours=1))
    assert found.places == ("size@eastus", "size@westus")


def test_traces_of_other_places_are_lived_in_at_the_prices_of_the_plan() -> None:
    dear = (Priced(0, Decimal(99)),)
    strange = replace(nights(8), place=Place("", "p3.2xlarge V100"), prices=dear)
    assert calendar([JOB], [strange], None) is None

    found = calendar(*elsewhere(JOB, {"us-east-1a_v100_1": strange}), None)

    assert found is not None
    assert found.places == ("size@us-east-1a_v100_1",)
    assert found.cells == taken([nights(8)], deadline_h=None).cells
