"""Read jobs with everything that the API shows of them, in one query for one job or many.

Written in SQL, since it runs more often than all other queries together: every part is one index
look-up per job, and SQLAlchemy compiles nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Engine
from service.db.cloud import offerings
from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.money.metered_cost import machine_cost, storage_cost
from service.domain.cloud.fleet import Offering
from service.domain.planning import checkpoint_interval, forecast
from service.domain.planning.forecast import (
    NO_WAIT,
    EvictionWait,
    ForecastInputs,
    ObservedProgress,
    RemainingTime,
)
from service.domain.queue.admission import QueueStanding, WaitReason
from service.domain.queue.queue_forecast import AdmissionForecast
from service.domain.reporting.progress import with_committed
from service.domain.reporting.status_message import AttemptFacts, JobFacts
from service.domain.states import (
    JOB_TERMINAL,
    AttemptState,
    CapacityType,
    Outcome,
)
from service.domain.storage.access_tiers import GIB
from trainer.contract import DirectiveKind

_HELP = "attempt.needs_help"
_Row = Any  # its columns are attributes

# For finished jobs, skips the look-ups of what is shown only while a job runs.
_QUERY = """
select j.*,
  a.id a_id, a.state a_state, a.since a_since, a.outcome a_outcome,
  a.reason a_reason, a.region a_region, a.vm_size a_vm_size, a.capacity_type a_capacity_type,
  a.engine a_engine,
  a.instance_count a_instance_count, a.hourly a_hourly, a.refusals a_refusals, a.duds a_duds,
  a.ran_at a_ran_at, coalesce(a.over_at, a.since) < j.since a_resumed,
  a.evicted_noticed a_evicted_noticed, a.evicted_unnoticed a_evicted_unnoticed,
  jsonb_array_length(a.vm_ids) a_running, jsonb_array_length(g.content -> 'members') g_members,
  t.attempts, t.evictions, t.live, n.joined, n.evicting,
  g.number g_number, g.opened_at g_opened_at, f.loaded_at g_loaded_at,
  (g.content -> 'checkpoint' ->> 'step')::int g_from_step, g.halt_kind,
  g.halt_reason, k.id k_id, k.step k_step, k.committed_at k_committed_at,
  e.code e_code, e.message e_message, l.spent, l.on_demand, l.billed,
  s.kept, s.a_month, m.charges, r.rung,
  w.waits_since w_since, w.position w_position, w.code w_code, w.why w_why
from (
  select {columns}, state not in ({terminal}) goes_on from jobs where {which}
) j
left join lateral (
  select * from attempts where job_id = j.id order by number desc limit 1
) a on true
left join lateral (
  select count(*) attempts,
    count(*) filter (where outcome = 'evicted') + coalesce(sum(survived), 0) evictions,
    count(*) filter (where state <> 'ended') live
  from attempts where job_id = j.id
) t on true
left join lateral (
  select count(*) joined, count(*) filter (where evicting) evicting
  from nodes where attempt_id = a.id and j.goes_on and jsonb_exists(a.vm_ids, vm_id)
) n on true
left join lateral (
  select * from generations where attempt_id = a.id and j.goes_on order by number desc limit 1
) g on true
left join lateral (
  select to_timestamp(max((s ->> 'ended_at')::float)) loaded_at
  from nodes, jsonb_array_elements(spans) s
  where attempt_id = a.id and s ->> 'name' = 'load'
    and (s ->> 'ended_at')::float > extract(epoch from g.opened_at)
    and (a.state = 'starting' or coalesce((j.progress ->> 'step')::int, 0)
      <= coalesce((g.content -> 'checkpoint' ->> 'step')::int, 0))
) f on true
left join lateral (
  select id, step, committed_at from checkpoints
  where job_id = j.id and dropped_at is null and broken_because is null{and_shown}
  order by step desc, generation desc limit 1
) k on true
left join lateral (
  select code, message from events
  where job_id = j.id and code in ('attempt.needs_help', 'attempt.help_over') and j.goes_on
  order by seq desc limit 1
) e on true
left join lateral (
  select {spent} spent, {on_demand} on_demand, count(*) filter (where ended_at is null) billed
  from ledger where job_id = j.id
) l on true
left join lateral (
  select {kept} kept,
    sum(size * month) filter (where ended_at is null) / {gib} a_month
  from storage_ledger where job_id = j.id
) s on true
left join lateral (
  select sum(charge) charges from tier_moves where job_id = j.id
) m on true
left join lateral (
  select content -> 'rung' rung from generations where job_id = j.id order by number desc limit 1
) r on true
left join queue w on w.job_id = j.id and w.waits_since is not null and j.goes_on
"""


@dataclass(frozen=True, kw_only=True)
class MachineCosts:
    """Cost of the job's machines until now, and whether it is final."""

    spent: Decimal
    on_demand: Decimal  # the same machine time at that price
    hourly: Decimal | None  # of one machine of the newest attempt
    running: int  # machines of that attempt, while it trains; 0 otherwise
    is_final: bool  # every scale set was seen to be gone: the cost is final


@dataclass(frozen=True, kw_only=True)
class StorageCosts:
    """Cost of the job's bytes in Blob until now, moves between tiers included."""

    spent: Decimal
    monthly: Decimal  # of the bytes that are there now


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """The newest committed checkpoint."""

    id: str
    step: int
    committed_at: datetime


@dataclass(frozen=True, kw_only=True)
class JobOverview:
    """A job, and everything that is shown with it."""

    job: JobRow
    facts: JobFacts
    machines: MachineCosts
    storage: StorageCosts
    checkpoint: NewestCheckpoint | None
    attempts: int
    current_attempt: str | None
    rung: dict[str, Any] | None  # of the newest generation; None: as planned
    on_demand: bool = False  # the newest attempt runs on demand, and is not over
    wait: RemainingTime | None = None  # for Spot after a refusal; `operations.waits` adds it ...
    aftermath: EvictionWait | None = None  # ... and this: after evictions; None: it does not wait
    admission_forecast: AdmissionForecast | None = None  # None: admitted, or not forecast yet
    slack: float | None = None  # longest total wait in seconds; None: no limit

    @cached_property
    def remaining_time(self) -> RemainingTime:
        """Return the time to the last step, at the measured pace if there is one."""
        return self._remaining(NO_WAIT)

    @property
    def finish(self) -> RemainingTime:
        """Return the time to the last step with the waits for machines, which are not paid for."""
        remaining = self._remaining(self.aftermath) if self.aftermath else self.remaining_time
        for wait in (self.wait, self.admission_forecast.after if self.admission_forecast else None):
            remaining = remaining if wait is None else remaining.after(wait)
        return (
            remaining
            if self.slack is None
            else remaining.no_later(self.slack, than=self.remaining_time)
        )

    def _remaining(self, after: EvictionWait) -> RemainingTime:
        job, interval = self.job, checkpoint_interval.spot_interval(self.job.progress)
        return forecast.forecast_remaining(
            ForecastInputs.of_plan(job.plan).as_it_runs(interval, on_demand=self.on_demand),
            steps=job.total_steps - job.progress.get("step", 0),
            seconds_per_step=job.progress.get("seconds_per_step"),
            running=self.machines.running > 0,
            progress=ObservedProgress.of(job.progress, self.facts.evictions),
            after=after,
        )


async def find_overview(
    conn: AsyncConnection, job_id: str, project_id: str, now: datetime
) -> JobOverview | None:
    """Return the job with its facts; None if it is unknown or another project's."""
    parameters = {"now": now, "job": job_id, "project": project_id}
    query = overview_query("id = :job and project_id = :project")
    row = (await conn.execute(query, parameters)).one_or_none()
    return parse_overview(row) if row else None


def new_overview(job: JobRow) -> JobOverview:
    """Return a job that was just written with its facts, without a query: it has none yet."""
    return parse_overview(_NewJobRow(job))


class _NewJobRow:
    """The row that the query would return for a new job."""

    attempts = evictions = live = 0

    def __init__(self, job: JobRow) -> None:
        self.__dict__.update(vars(job))

    def __getattr__(self, name: str) -> None:
        """Return None for every column that is not the job's own."""


@cache
def overview_query(
    condition: str, *, extra_columns: str = "", and_shown: str = "", order: str = ""
) -> TextClause:
    """Return the query for the rows of ``jobs`` that ``condition`` selects.

    ``extra_columns`` are further columns of the inner select, ``order`` orders the outer one.
    """
    terminal = ", ".join(f"'{state}'" for state in sorted(JOB_TERMINAL))
    columns = ", ".join(JobRow.__dataclass_fields__)
    parts = {"columns": columns + extra_columns, "terminal": terminal, "which": condition}
    parts["and_shown"] = and_shown
    parts |= {"spent": machine_cost(), "on_demand": machine_cost("on_demand_hourly")}
    parts |= {"kept": storage_cost(), "gib": f"{GIB}.0"}
    return text(_QUERY.format(**parts) + order)


def parse_overview(r: _Row) -> JobOverview:
    """Return the job of a row of the query, with its facts."""
    job = _parsed(r)
    newest = (r.k_id, r.k_step, r.k_committed_at)
    return JobOverview(
        job=job,
        facts=_facts(r, job),
        machines=MachineCosts(
            spent=r.spent or Decimal(0),
            on_demand=r.on_demand or Decimal(0),
            hourly=r.a_hourly,
            running=r.a_running if r.a_state == AttemptState.RUNNING else 0,
            is_final=not (r.live or r.billed),
        ),
        storage=StorageCosts(
            spent=(r.kept or Decimal(0)) + (r.charges or Decimal(0)),
            monthly=r.a_month or Decimal(0),
        ),
        checkpoint=NewestCheckpoint(
            **dict(zip(("id", "step", "committed_at"), newest, strict=True))
        )
        if r.k_id
        else None,
        attempts=r.attempts,
        current_attempt=r.a_id,
        rung=r.rung,
        on_demand=r.a_capacity_type == CapacityType.ON_DEMAND and r.a_outcome is None,
    )


def _parsed(r: _Row) -> JobRow:
    """Return the job, with progress no lower than its model or newest checkpoint."""
    job = jobs.parse_row(r)
    model, is_over = job.result or {}, job.state in JOB_TERMINAL
    step, loss = model.get("step", r.k_step or 0), model.get("valid_loss")
    return replace(
        job, progress=with_committed(job.progress, step, is_over=is_over, valid_loss=loss)
    )


def _facts(r: _Row, job: JobRow) -> JobFacts:
    attempt = _attempt(r) if r.a_id else None
    options = job.plan["options"]
    following = options[(attempt.refusals if attempt else 0) % len(options)]
    return JobFacts(
        state=job.state,
        total_steps=job.total_steps,
        reason=job.reason,
        cancel_requested=job.cancel_requested_at is not None,
        pause_requested=job.pause_requested_at is not None,
        over_budget=job.over_budget_because if job.over_budget_at else "",
        since=job.since,
        waits_for=job.waits_for,
        asks_again_at=job.asks_again_at,
        has_trained=job.started_at is not None,
        step=job.progress.get("step", 0),
        checkpoint_step=r.k_step or 0,
        evictions=r.evictions,
        next_offering=_offering(following),
        help_wanted=r.e_message if r.e_code == _HELP else "",
        queue=_queue_standing(r),
        attempt=attempt,
    )


def _queue_standing(r: _Row) -> QueueStanding | None:
    if r.w_since is None:
        return None
    code = WaitReason(r.w_code)
    return QueueStanding(since=r.w_since, position=r.w_position, code=code, why=r.w_why)


def _attempt(r: _Row) -> AttemptFacts:
    outcome = Outcome(r.a_outcome) if r.a_outcome else None
    before = (r.a_refusals, r.a_duds)
    refusals, duds = jobs.consecutive_failures(outcome, r.a_ran_at, *before, resumed=r.a_resumed)
    offering_columns = {name: getattr(r, f"a_{name}") for name in offerings.NAMES}
    return AttemptFacts(
        state=AttemptState(r.a_state),
        since=r.a_since,
        outcome=outcome,
        reason=r.a_reason,
        offering=_offering(offering_columns),
        region=r.a_region,
        instance_count=r.a_instance_count,
        refusals=refusals,
        duds=duds,
        evicted_noticed=r.a_evicted_noticed,
        evicted_unnoticed=r.a_evicted_unnoticed,
        joined=r.joined,
        evicting=r.evicting,
        generation=r.g_number or 0,
        opened_at=r.g_opened_at,
        loaded_at=r.g_loaded_at,
        members=r.g_members or 0,
        from_step=r.g_from_step or 0,
        halt_kind=DirectiveKind(r.halt_kind) if r.halt_kind else None,
        halt_reason=r.halt_reason or "",
    )


def _offering(columns: dict[str, Any]) -> str:
    return str(
        Offering(
            region=columns["region"],
            vm_size=columns["vm_size"],
            capacity_type=CapacityType(columns["capacity_type"]),
            engine=Engine(columns.get("engine", Engine.SCALE_SET)),
        )
    )
