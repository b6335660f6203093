"""History of a job and its evictions, read from the service's database."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.recovery.observed import records
from bench.recovery.observed.records import GenerationRecord, JobRecord
from bench.report import percentile


@dataclass(frozen=True, kw_only=True)
class MachineLoss:
    """One eviction of a machine."""

    noticed: bool
    at: float  # Unix seconds of the machine's end, or of the notice
    attempt: str
    generation: int  # generation that trained at this time


@dataclass(frozen=True, kw_only=True)
class GenerationWorld:
    """One generation: its number of nodes, its first step, and the steps that it repeated."""

    number: int
    nodes: int
    lost_steps: int
    first_step_at: float | None


@dataclass(frozen=True, kw_only=True)
class JobHistory:
    """One job from its first machine to its last."""

    elastic: bool
    job: str
    nodes: int
    steps: int
    strikes: Sequence[MachineLoss]
    record: JobRecord
    worlds: dict[int, GenerationWorld] = field(default_factory=dict)  # by number of the generation
    paid_node_seconds: float = 0.0
    step_seconds: dict[int, float] = field(default_factory=dict)  # median, by number of nodes

    @property
    def steps_per_node_second(self) -> float:
        """Steps of the job per paid node second, boot time included."""
        return self.steps / self.paid_node_seconds


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Recovery from one eviction, in seconds; None where a stage did not happen."""

    noticed: bool
    detect: float | None = None  # until the service's decision
    halt: float | None = None  # until members stopped, or a new generation opened in place
    machines: float | None = None  # until the new scale set's generation opened; None in place
    load: float | None = None  # until the first step ended
    training: float | None = None  # sum: from the eviction to the first step
    full: float | None = None  # from the eviction to a step on all nodes
    nodes: int = 0  # nodes of the generation that resumed
    lost_steps: int = 0


def recovery(history: JobHistory, strike: MachineLoss) -> Recovery:
    """Return the recovery from an eviction, as far as the database tells it."""
    record = history.record
    opened = _next_trained(history, strike.generation)
    decided = record.decision_after(strike.at, strike.generation, strike.attempt)
    if opened is None or decided is None:
        return Recovery(noticed=strike.noticed)
    world = history.worlds[opened.number]
    assert world.first_step_at is not None
    moved = opened.attempt != strike.attempt
    stopped = record.by_id[opened.attempt].created_at if moved else opened.opened_at
    return Recovery(
        noticed=strike.noticed,
        detect=decided - strike.at,
        halt=max(stopped - decided, 0.0),
        machines=opened.opened_at - stopped if moved else None,
        load=world.first_step_at - opened.opened_at,
        training=world.first_step_at - strike.at,
        full=_seconds_to_full(history, strike),
        nodes=world.nodes,
        lost_steps=_repeated_steps(history, strike.generation, opened.number),
    )


async def read(
    database: psycopg.AsyncConnection[Any],
    job: str,
    strikes: Sequence[MachineLoss],
    *,
    elastic: bool,
    nodes: int,
) -> JobHistory:
    """Read the history of a job whose machines are all gone."""
    record = await records.read(database, job)
    worlds = {}
    for number, members, lost_steps in await records.rows_of_job(database, _WORLDS, job):
        first = _first_step(record, number)
        world = GenerationWorld(
            number=number, nodes=members, lost_steps=lost_steps, first_step_at=first
        )
        worlds[number] = world
    ((paid,),) = await records.rows_of_job(database, _PAID, job)
    pace: dict[int, list[float]] = {}
    for generation, seconds in await records.rows_of_job(database, _PACE, job):
        pace.setdefault(worlds[generation].nodes, []).append(seconds)
    return JobHistory(
        elastic=elastic,
        job=job,
        nodes=nodes,
        steps=sum(map(len, pace.values())),
        strikes=strikes,
        record=record,
        worlds=worlds,
        paid_node_seconds=float(paid),
        step_seconds={n: percentile(samples, 50) or 0.0 for n, samples in pace.items()},
    )


def _next_trained(history: JobHistory, number: int) -> GenerationRecord | None:
    """Return the next generation that finished a step; others did not resume training."""
    later = (g for g in history.record.generations if g.number > number)
    return next((g for g in later if history.worlds[g.number].first_step_at is not None), None)


def _repeated_steps(history: JobHistory, before: int, after: int) -> int:
    """Return the repeated steps of all generations from ``before`` (exclusive) to ``after``.

    A generation that never trained repeated no steps.
    """
    return sum(w.lost_steps for w in history.worlds.values() if before < w.number <= after)


def _seconds_to_full(history: JobHistory, strike: MachineLoss) -> float | None:
    moments = [
        world.first_step_at - strike.at
        for world in history.worlds.values()
        if world.number > strike.generation
        and world.nodes == history.nodes
        and world.first_step_at is not None
    ]
    return min(moments, default=None)


def _first_step(record: JobRecord, number: int) -> float | None:
    """Return the end of the generation's first step, in Unix seconds, by its nodes' clocks."""
    row = record.generation(number)
    assert row is not None, "both are read of the same rows"
    after = [g.opened_at for g in record.generations if g.number > number]
    ends = (
        span[2]
        for span in record.by_id[row.attempt].spans
        if span[0] == "first_step" and row.opened_at <= span[1] < min(after, default=span[1] + 1)
    )
    return min(ends, default=None)


_WORLDS = """select number, jsonb_array_length(content->'members'), lost_steps
             from generations where job_id = %s order by number"""
_PAID = """select extract(epoch from sum(coalesce(ended_at, now()) - started_at))
           from ledger where job_id = %s"""
_PACE = "select generation, seconds from metrics where job_id = %s"
