"""Times of the service's actions, read from its database after the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

Span = tuple[str, float, float]  # name, start, end


@dataclass(frozen=True, kw_only=True)
class GenerationRecord:
    """One generation: when it was opened, and when the service halted it."""

    number: int
    attempt: str
    opened_at: float
    halted_at: float | None


@dataclass(frozen=True, kw_only=True)
class AttemptTimes:
    """One attempt: when it was created, terminated, and joined by its first node."""

    id: str
    number: int
    created_at: float
    terminating_at: float | None
    joined_at: float | None
    spans: Sequence[Span] = ()  # spans of all its nodes


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """Generations and attempts of one job, oldest first."""

    generations: Sequence[GenerationRecord] = ()
    attempts: Sequence[AttemptTimes] = ()
    by_id: dict[str, AttemptTimes] = field(default_factory=dict)

    def decision_after(self, at: float, generation: int, attempt: str) -> float | None:
        """Return the time of the service's first decision after ``at``, in Unix seconds.

        A decision halts the generation, opens the next one or terminates the attempt.
        """
        moments = [
            *(g.halted_at for g in self.generations if g.number == generation),
            *(g.opened_at for g in self.generations if g.number == generation + 1),
            *(a.terminating_at for a in self.attempts if a.id == attempt),
        ]
        return min((m for m in moments if m is not None and m >= at), default=None)

    def generation(self, number: int) -> GenerationRecord | None:
        """Return the generation with this number, or None."""
        return next((g for g in self.generations if g.number == number), None)


async def read(database: psycopg.AsyncConnection[Any], job: str) -> JobRecord:
    """Read all generations and attempts of a job."""
    rows = await rows_of_job(
        database,
        """select number, attempt_id, opened_at, halted_at from generations
           where job_id = %s order by number""",
        job,
    )
    generations = [
        GenerationRecord(
            number=r[0], attempt=r[1], opened_at=r[2].timestamp(), halted_at=_seconds(r[3])
        )
        for r in rows
    ]
    rows = await rows_of_job(
        database,
        """select a.id, a.number, a.created_at,
                  (select min(e.at) from events e
                   where e.attempt_id = a.id and e.code = 'attempt.terminating'),
                  (select min(e.at) from events e
                   where e.attempt_id = a.id and e.code = 'node.registered'),
                  (select jsonb_agg(n.spans) from nodes n where n.attempt_id = a.id)
           from attempts a where a.job_id = %s order by a.number""",
        job,
    )
    attempts = [
        AttemptTimes(
            id=r[0],
            number=r[1],
            created_at=r[2].timestamp(),
            terminating_at=_seconds(r[3]),
            joined_at=_seconds(r[4]),
            spans=[(s["name"], s["started_at"], s["ended_at"]) for n in r[5] or () for s in n],
        )
        for r in rows
    ]
    return JobRecord(generations=generations, attempts=attempts, by_id={a.id: a for a in attempts})


async def rows_of_job(
    database: psycopg.AsyncConnection[Any], query: str, job: str
) -> list[tuple[Any, ...]]:
    """Return the rows of a query whose only parameter is the job."""
    return await (await database.execute(query, [job])).fetchall()


def _seconds(moment: Any) -> float | None:  # noqa: ANN401 - a datetime or nothing
    return None if moment is None else float(moment.timestamp())
