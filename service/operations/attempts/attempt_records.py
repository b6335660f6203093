"""Attempts with everything that belongs to them: generations, nodes, moves, machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import attempts, generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.generations import OpenedGeneration
from service.db.attempts.nodes import NodeReport
from service.db.jobs import events
from service.db.money import ledger
from service.domain.money.cost import LedgerRow
from service.domain.reporting.timeline import GenerationTimes, TimelineSpan, timeline
from service.domain.states import AttemptState

Moves = dict[AttemptState, datetime]


@dataclass(frozen=True, kw_only=True)
class RepeatedSteps:
    """Steps of a generation of this attempt that the next generation repeated."""

    attempt_id: str
    lost_steps: int
    last_step: int


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """An attempt with all that belongs to it."""

    row: AttemptRow
    generations: list[OpenedGeneration]
    nodes: list[NodeReport]
    moves: Moves
    ledger: list[LedgerRow]
    repeated_steps: list[RepeatedSteps]

    @property
    def timeline(self) -> list[TimelineSpan]:
        """Return the phases of the attempt."""
        generation_times = [
            GenerationTimes(
                opened_at=o.opened_at,
                halted_at=o.halted_at,
                halt_kind=o.halt_kind,
                number=o.generation.number,
                nodes=len(o.generation.members),
            )
            for o in self.generations
        ]
        return timeline(self.moves, generation_times, [t.time for t in self.nodes])


async def list_records(conn: AsyncConnection, job_id: str) -> list[AttemptRecord]:
    """Return every attempt of the job with its records, oldest first."""
    opened = await generations.of_job(conn, job_id)
    nodes_of_job = await nodes.reports_of_job(conn, job_id)
    moves = await events.moves(conn, job_id)
    meters = await ledger.of_job(conn, job_id)
    repeated_steps = _repeated_steps(opened)
    return [
        AttemptRecord(
            row=row,
            generations=[o for o in opened if o.generation.attempt_id == row.id],
            nodes=[t for t in nodes_of_job if t.attempt_id == row.id],
            moves={AttemptState.PENDING: row.created_at} | moves.get(row.id, {}),
            ledger=[m for m in meters if m.attempt_id == row.id],
            repeated_steps=[a for a in repeated_steps if a.attempt_id == row.id],
        )
        for row in await attempts.of_job(conn, job_id)
    ]


def start_step(opened: OpenedGeneration) -> int:
    """Return the step from which the generation resumes; 0 at the beginning."""
    checkpoint = opened.generation.checkpoint
    return checkpoint.step if checkpoint else 0


def _repeated_steps(opened: Sequence[OpenedGeneration]) -> list[RepeatedSteps]:
    return [
        RepeatedSteps(
            attempt_id=before.generation.attempt_id,
            lost_steps=following.lost_steps,
            last_step=start_step(following) + following.lost_steps,
        )
        for before, following in pairwise(opened)
    ]
