"""Simulations of a job's plan."""

from typing import Literal

from service.api.schemas.base import Answer


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
