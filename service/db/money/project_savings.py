"""Sum what each project's machines cost, and what they would have cost on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.money.metered_cost import machine_cost

# Reads attempts that had not ended when the period began, by the index of ends, instead of a year's
# ledger. An attempt without a machine in the period, as after a refusal, does not count. Evictions
# that an attempt outlived count, too.
_PERIOD = {"since": ":since", "until": ":now"}
_SUMS = f"""
with lasted as (
  select id, job_id, survived + (outcome is not distinct from 'evicted')::int evictions
  from attempts
  where (ended_at is null or ended_at > :since) and created_at < :now
), paid as (
  select t.job_id, t.evictions, m.spent, m.on_demand
  from lasted t
  cross join lateral (
    select {machine_cost(**_PERIOD)} spent,
      {machine_cost("on_demand_hourly", **_PERIOD)} on_demand
    from ledger
    where attempt_id = t.id and started_at < :now and (ended_at is null or ended_at > :since)
    having count(*) > 0
  ) m
), sums as (
  select j.project_id id, count(distinct j.id) jobs, sum(p.evictions) evictions,
    sum(p.spent) spent, sum(p.on_demand) on_demand
  from paid p join jobs j on j.id = p.job_id
  group by j.project_id
)
"""  # noqa: S608 - constants
_PAGE = """
select s.*, projects.name from sums s join projects on projects.id = s.id
where :after is null or (s.spent, s.id) < (select spent, id from sums where id = :after)
order by s.spent desc, s.id desc limit :limit
"""
_TOTAL = """
select count(*) projects, coalesce(sum(jobs), 0) jobs, coalesce(sum(evictions), 0) evictions,
  coalesce(sum(spent), 0) spent, coalesce(sum(on_demand), 0) on_demand,
  :after is null or count(*) filter (where id = :after) > 0 known
from sums
"""
_QUERY = f"""{_SUMS}
select w.*, page.* from ({_TOTAL}) w (
  projects, w_jobs, w_evictions, w_spent, w_on_demand, known
) left join ({_PAGE}) page on true
order by page.spent desc, page.id desc
"""  # noqa: S608 - constants
_TYPES = {"now": "timestamptz", "since": "timestamptz", "after": "text"}
_MEMBERS = ("jobs", "evictions", "spent", "on_demand")


@dataclass(frozen=True, kw_only=True)
class SavingsRow:
    """Cost of the machines of one project or of all, in US dollars."""

    id: str  # of the project; "": all
    name: str
    jobs: int
    evictions: int
    spent: Decimal
    on_demand: Decimal  # the same machine time at that price


@dataclass(frozen=True, kw_only=True)
class SavingsPage:
    """A page of projects, highest cost first, and the totals of all of them."""

    page: Sequence[SavingsRow]
    total: SavingsRow
    projects: int  # that had machines


async def by_project(
    conn: AsyncConnection, since: datetime, now: datetime, *, after: str | None, limit: int
) -> SavingsPage | None:
    """Return savings from ``since`` to ``now``; None if ``after`` had no machines then.

    Pages are consistent with each other only if they share ``now``.
    """
    query = _QUERY
    for name, kind in _TYPES.items():
        query = query.replace(f":{name}", f"cast(:{name} as {kind})")
    parameters = {"since": since, "now": now, "after": after, "limit": limit}
    rows = (await conn.execute(text(query), parameters)).mappings().all()
    if not rows[0]["known"]:
        return None
    return SavingsPage(
        page=[_saved(row) for row in rows if row["id"] is not None],
        total=_saved(rows[0], "w_"),
        projects=rows[0]["projects"],
    )


def _saved(row: RowMapping, prefix: str = "") -> SavingsRow:
    values: dict[str, Any] = {name: row[f"{prefix}{name}"] for name in _MEMBERS}
    values |= {name: int(values[name]) for name in ("jobs", "evictions")}
    named = {"id": "", "name": ""} if prefix else {"id": row["id"], "name": row["name"]}
    return SavingsRow(**(values | named))
