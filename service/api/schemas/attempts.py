"""Attempts: each allocation of machines, its steps and its cost."""

from typing import Literal

from pydantic import JsonValue

from service.api.schemas.base import Answer, Money, UnixTime


class Evicted(Answer):
    """Machines of the attempt that were evicted."""

    noticed: int
    unnoticed: int


class Generation(Answer):
    """One membership of nodes; an elastic job's attempt may have several that differ."""

    number: int
    nodes: int
    from_step: int
    opened_at: UnixTime
    halted_at: UnixTime | None
    halted_because: str | None
    rung: dict[str, JsonValue] | None
    """Changes after memory ran out; null: as planned."""


class TimelineEntry(Answer):
    """A phase of the attempt; times are Unix seconds with milliseconds."""

    name: str
    title: str
    generation: int | None
    started_at: float
    ended_at: float | None
    seconds: float


class Attempt(Answer):
    """One allocation of machines: its offering, price, outcome, steps and phases."""

    id: str
    object: Literal["fine_tuning.job.attempt"] = "fine_tuning.job.attempt"
    number: int
    region: str
    sku: str
    """VM size."""
    capacity: str
    """`spot` or `on_demand`."""
    engine: str
    """`scale_set` or `azureml`."""
    nodes: int
    price_per_hour: Money
    """Price of one machine."""
    state: str
    outcome: str | None
    reason: str | None
    evicted: Evicted
    created_at: UnixTime
    ended_at: UnixTime | None
    from_step: int | None
    last_step: int | None
    steps: int
    lost_steps: int
    """Steps that later attempts repeated."""
    cost: Money
    machine_hours: str
    generations: list[Generation]
    timeline: list[TimelineEntry]


class AttemptList(Answer):
    """Every attempt of a job, oldest first."""

    object: Literal["list"] = "list"
    data: list[Attempt]
    has_more: Literal[False] = False
