"""Estimate an elastic job's outlook for growing, from what this attempt has measured so far."""

import math
from datetime import UTC, datetime
from itertools import pairwise

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.generations import OpenedGeneration
from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.domain.cloud.fleet import ScaleSet, ScaleSetPhase
from service.domain.lifecycle.attempt import Attempt
from service.domain.lifecycle.elastic import GrowthOutlook
from trainer.contract import DirectiveKind

_PHASES_BEFORE_JOIN = (ScaleSetPhase.CREATING, ScaleSetPhase.READY)


def is_needed(
    attempt: Attempt, scale_set: ScaleSet | None, opened: OpenedGeneration | None
) -> bool:
    """Return whether an elastic job has too few machines: only then is the outlook used."""
    if attempt.elastic is None or opened is None:
        return False
    machine_count = attempt.instance_count
    is_short = len(opened.generation.members) < machine_count
    is_missing = (
        scale_set is not None and sum(i.running for i in scale_set.instances) < machine_count
    )
    return is_short or is_missing


async def growth_outlook(
    conn: AsyncConnection,
    attempt: Attempt,
    row: AttemptRow,
    scale_set: ScaleSet | None,
    opened: OpenedGeneration | None,
    now: datetime,
) -> GrowthOutlook:
    """Return the outlook for growing; the default outlook if it is not used."""
    if not is_needed(attempt, scale_set, opened):
        return GrowthOutlook()
    assert opened is not None, "it is wanted of a generation"
    job = await jobs.find(conn, row.job_id)
    assert job is not None, "an attempt has a job: the foreign key says so"
    opened_generations = await generations.of_attempt(conn, row.id)
    arrival = (opened_generations[0].opened_at - row.created_at).total_seconds()
    joined_vm_ids = {r.vm_id for r in await nodes.of_attempt(conn, row.id)}
    return GrowthOutlook(
        remaining=_remaining_seconds(job),
        disruption=_eviction_interval(job, row),
        restart=await _restart_seconds(conn, row, opened_generations),
        arrival=arrival,
        next_join=_seconds_to_next_join(row, scale_set, joined_vm_ids, arrival, now),
    )


def _remaining_seconds(job: JobRow) -> float:
    pace = job.progress.get("seconds_per_step")
    if pace is None:
        return math.inf
    return float(max(job.total_steps - job.progress.get("step", 0), 0) * pace)


def _eviction_interval(job: JobRow, row: AttemptRow) -> float:
    """Return the mean time in seconds between evictions that the plan expects here."""
    plan = job.parsed_plan
    option = next((o for o in plan.options if o.offering == row.offering), plan.chosen)
    evictions = option.expected_evictions
    return option.duration_p50 / evictions if evictions > 0 else math.inf


async def _restart_seconds(
    conn: AsyncConnection, row: AttemptRow, generations: list[OpenedGeneration]
) -> float:
    """Return the seconds of the last restart in place: save, stop, and first step."""
    opened_at = generations[-1].opened_at
    steps = [
        datetime.fromtimestamp(span.ended_at, UTC)
        for span in await nodes.spans_named(conn, row.id, "first_step")
    ]
    first = min((at for at in steps if at > opened_at), default=opened_at)
    save_seconds = [
        (after.opened_at - before.halted_at).total_seconds()
        for before, after in pairwise(generations)
        if before.halted_at and before.halt_kind is DirectiveKind.CHECKPOINT_AND_STOP
    ]
    return (first - opened_at).total_seconds() + (save_seconds[-1] if save_seconds else 0.0)


def _seconds_to_next_join(
    row: AttemptRow,
    scale_set: ScaleSet | None,
    joined_vm_ids: set[str],
    arrival: float,
    now: datetime,
) -> float:
    """Return the seconds until a coming machine has joined, if it boots as fast as the first ones.

    Infinite without one, and for one that is late.
    """
    if scale_set is None or row.refilled_at is None or scale_set.phase not in _PHASES_BEFORE_JOIN:
        return math.inf
    boots = any(i.running and i.vm_id not in joined_vm_ids for i in scale_set.instances)
    if not boots and scale_set.phase is ScaleSetPhase.READY:
        return math.inf
    remaining_s = arrival - (now - row.refilled_at).total_seconds()
    return remaining_s if remaining_s > 0 else math.inf
