"""Promises about rows, events, machines and costs: checked in every round, and at the end."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.cloud.fake import FakeCloud
from service.db.attempts import attempts as attempt_rows
from service.db.attempts.attempts import AttemptRow
from service.db.money import ledger
from service.db.schema.tables import attempts, events, generations, jobs, nodes
from service.domain.cloud.fleet import scale_set_name
from service.domain.money.cost import LedgerRow
from service.domain.states import (
    ATTEMPT_MOVES,
    ATTEMPT_WITH_OUTCOME,
    JOB_MOVES,
    JOB_TERMINAL,
    AttemptState,
    JobState,
)

_ROUND = timedelta(seconds=10)


@dataclass
class Census:
    """Records when each machine existed, which is what Azure bills."""

    first: dict[str, datetime] = field(default_factory=dict)  # ordered, by vm_id
    last: dict[str, datetime] = field(default_factory=dict)  # last time it existed
    of: dict[str, str] = field(default_factory=dict)  # vm_id -> scale set
    faults: list[datetime] = field(default_factory=list)  # when Azure's answers began to fail

    def was_visible(self, vm_id: str, apart: timedelta, slack: timedelta) -> bool:
        """Return whether the service had time to observe the machine.

        Each failed call of Azure during its life excuses at most ``slack``.
        """
        first, last = self.first[vm_id] - _ROUND, self.last[vm_id]
        failures = sum(first <= t <= last for t in self.faults)
        return last - first > _ROUND + apart + failures * slack

    def count_machines(self, cloud: FakeCloud, now: datetime) -> None:
        """Record the existing machines, visible to the service or not."""
        for scale_set in cloud.list_existing(()):
            for instance in scale_set.instances:
                created_at = instance.created_at or scale_set.created_at or now
                self.first.setdefault(instance.vm_id, created_at)
                self.last[instance.vm_id] = now
                self.of[instance.vm_id] = scale_set.name


def doubled(cloud: FakeCloud, rows: Iterable[AttemptRow]) -> Iterator[str]:
    """Yield jobs with two live attempts, and attempts whose outcome does not fit their state."""
    rows = list(rows)
    live = Counter(r.job_id for r in rows if r.state not in ATTEMPT_WITH_OUTCOME)
    yield from (f"job {job} has {n} live attempts" for job, n in live.items() if n > 1)
    inconsistent = [
        r.id for r in rows if (r.state in ATTEMPT_WITH_OUTCOME) != (r.outcome is not None)
    ]
    yield from (f"{name}: the outcome is known from terminating on" for name in inconsistent)
    billed = cloud.billed_names()
    holding = [
        r for r in rows if r.state not in ATTEMPT_WITH_OUTCOME and scale_set_name(r.id) in billed
    ]
    by_job = Counter(r.job_id for r in holding)
    yield from (f"job {job} holds machines of {n} attempts" for job, n in by_job.items() if n > 1)


def leaked(cloud: FakeCloud, rows: Iterable[AttemptRow]) -> Iterator[str]:
    """Yield scale sets that cost money and belong to no attempt that may still need them."""
    live = {scale_set_name(r.id) for r in rows if r.state is not AttemptState.ENDED}
    yield from (f"scale set {name} leaked" for name in sorted(cloud.billed_names() - live))


def unknown(cloud: FakeCloud, rows: Iterable[AttemptRow]) -> Iterator[str]:
    """Yield what costs money before an attempt knows of it, or after one was over."""
    knows = {
        scale_set_name(r.id)
        for r in rows
        if r.state not in (AttemptState.PENDING, AttemptState.ENDED)
    }
    yield from (f"no attempt knows {name}" for name in sorted(cloud.billed_names() - knows))


async def unordered_news(
    conn: AsyncConnection, job_id: str, newest: dict[str, tuple[int, int]]
) -> list[str]:
    """Return nodes of which the service believes older news than before; update ``newest``."""
    query = (
        select(nodes.c.id, nodes.c.epoch, nodes.c.heartbeat_seq)
        .join(attempts, attempts.c.id == nodes.c.attempt_id)
        .where(attempts.c.job_id == job_id)
    )
    broken = []
    for node_id, epoch, seq in (await conn.execute(query)).all():
        if (epoch, seq) < newest.get(node_id, (0, 0)):
            broken.append(f"{node_id}: {(epoch, seq)} is believed after {newest[node_id]}")
        newest[node_id] = (epoch, seq)
    return broken


async def odd_sizes(conn: AsyncConnection, job_id: str, allowed: tuple[int, ...]) -> list[str]:
    """Return the generations whose number of nodes is not one that job and batch allow."""
    query = select(generations.c.number, generations.c.content).where(
        generations.c.job_id == job_id
    )
    rows = [(number, len(content["members"])) for number, content in await conn.execute(query)]
    return [f"generation {n} has {size} nodes" for n, size in rows if size not in allowed]


def unbilled(
    census: Census, costs: Iterable[LedgerRow], slack: timedelta, apart: timedelta
) -> Iterator[str]:
    """Yield machine time that the ledger lacks, or has though there was no machine.

    ``slack``: how long a machine may be gone before it is seen to be. ``apart``: how far the
    replicas' clocks are; where they agree, never is less billed than was there. That goes for a
    machine as well that came when its attempt was over: docs/adr/0046.
    """
    rows: dict[str, list[LedgerRow]] = {}
    for row in costs:
        rows.setdefault(row.vm_id, []).append(row)
    for vm_id, first in census.first.items():
        machine_rows = rows.get(vm_id, [])
        if not machine_rows:
            if census.was_visible(vm_id, apart, slack):
                yield f"machine {vm_id} of {census.of[vm_id]} has no row"
            continue
        start = min(r.started_at for r in machine_rows)
        end = max(r.ended_at or r.started_at for r in machine_rows)
        if start > first + apart or end < census.last[vm_id] - apart:
            lifetime = f"{first:%T} to {census.last[vm_id]:%T}"
            yield f"machine {vm_id} was there {lifetime}, billed {start:%T} to {end:%T}"
        if end > census.last[vm_id] + slack + apart:
            yield f"machine {vm_id} billed {end - census.last[vm_id]} too long"
    yield from (f"machine {vm_id} was never there" for vm_id in rows.keys() - census.first.keys())
    yield from (f"machine {r.vm_id} is billed for ever" for r in costs if r.ended_at is None)


async def disorder(conn: AsyncConnection, job_id: str) -> list[str]:
    """Return events out of order: by time, or as moves that the life cycle does not have."""
    query = select(events).where(events.c.job_id == job_id).order_by(events.c.seq)
    event_rows = (await conn.execute(query)).all()
    faults = []
    if [e.at for e in event_rows] != sorted(e.at for e in event_rows):
        faults.append("events are not in the order of their times")
    state = JobState.VALIDATING
    by_attempt: dict[str, AttemptState] = {}
    for event in event_rows:
        kind, _, name = event.code.partition(".")
        if kind == "job" and name in list(JobState):
            if name not in JOB_MOVES[state]:
                faults.append(f"job: {state} -> {name}")
            state = JobState(name)
        if kind == "attempt" and name in list(AttemptState):
            before = by_attempt.get(event.attempt_id, AttemptState.PENDING)
            if name not in ATTEMPT_MOVES[before]:
                faults.append(f"{event.attempt_id}: {before} -> {name}")
            by_attempt[event.attempt_id] = AttemptState(name)
    rows = await attempt_rows.of_job(conn, job_id)
    unreported = [r.id for r in rows if by_attempt.get(r.id, AttemptState.PENDING) != r.state]
    faults += [f"{name}: its state has no event" for name in unreported]
    last = (await conn.execute(select(jobs.c.state).where(jobs.c.id == job_id))).scalar_one()
    return faults + ([f"job is {last}, told is {state}"] if last != state else [])


async def story(conn: AsyncConnection, job_id: str) -> dict[str, object]:
    """Return what must be the same, wherever the service was struck."""
    rows = await attempt_rows.of_job(conn, job_id)
    job = (await conn.execute(select(jobs).where(jobs.c.id == job_id))).one()
    numbers = select(generations.c.number).where(generations.c.job_id == job_id)
    codes = select(events.c.code).where(events.c.job_id == job_id)
    costs = await ledger.of_job(conn, job_id)
    return {
        "job": job.state,
        "attempts": [(r.number, r.state, r.outcome) for r in rows],
        "generations": sorted((await conn.execute(numbers)).scalars()),
        "events": dict(sorted(Counter((await conn.execute(codes)).scalars()).items())),
        "machines": len({r.vm_id for r in costs}),
        "over": job.state in JOB_TERMINAL,
    }
