"""Simulations of a job's plan: many lives, and the capacity calendar."""

from typing import Literal

from service.api.schemas.base import Answer, UnixTime


class Dollars(Answer):
    """US dollars as decimal strings, at three percentiles."""

    p10: str
    p50: str
    p90: str


class Spread(Answer):
    """A figure at three percentiles; null where a life has no end."""

    p10: float | None
    p50: float | None
    p90: float | None


class Way(Answer):
    """One way of running the job, over all lives."""

    name: Literal["rekindle", "spot_only", "on_demand"]
    dollars: Dollars
    hours: Spread
    evictions: Spread
    in_time_pct: float | None
    unfinished_pct: float
    on_demand_pct: float
    currency: Literal["USD"]


class Simulation(Answer):
    """What the job's plan may cost and take."""

    object: Literal["simulation"] = "simulation"
    job: str
    lives: int
    deadline_hours: float | None
    ways: list[Way]


class CalendarCell(Answer):
    """Lives that began at one time of the week."""

    begins: int
    dollars: str | None
    hours_taken: float | None
    in_time_percent: float | None
    unfinished_percent: float


class CalendarHour(CalendarCell):
    """The same for one hour of the day."""

    hour: int


class CalendarSlot(CalendarCell):
    """The same for one hour of one weekday."""

    weekday: int
    hour: int


class Calendar(Answer):
    """What the job would have cost by the hour of its start. Hours are UTC."""

    object: Literal["capacity_calendar"] = "capacity_calendar"
    job: str
    since: UnixTime
    until: UnixTime
    places: list[str]
    seen_percent: float
    lives: int
    cut: str | None
    enough: bool
    doubt: str | None
    currency: Literal["USD"]
    whole: CalendarCell | None
    hours: list[CalendarHour]
    cells: list[CalendarSlot]
