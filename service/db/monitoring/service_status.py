"""Read the state of the service: overdue work, turns, reads of Azure, calls for help."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core.replicas import Replica, connected_replicas

MAX_HELP_ROWS = 200  # jobs that need help

_WORK = text("""
select 'jobs' as name, count(*) filter (where due_at <= :now and lease_token is null) due,
  min(due_at) filter (where due_at <= :now and lease_token is null) oldest_due_at,
  count(*) filter (where lease_expires_at > :now) leased
from jobs where state not in ('succeeded', 'failed', 'cancelled')
union all
select 'attempts', count(*) filter (where due_at <= :now and lease_token is null),
  min(due_at) filter (where due_at <= :now and lease_token is null),
  count(*) filter (where lease_expires_at > :now)
from attempts where state <> 'ended'
""")
_AZURE_READS = text("""
select 'scale sets' as what, listed_at read_at, due_at, '' trouble, null::timestamptz trouble_at
from cloud_listings
union all
select 'cores in ' || region, read_at, due_at, '', null from core_quotas
union all
select what, told_at, due_at, trouble, trouble_at from market_looks where what not like 'price of %'
order by 1
""")
_HELP = text("""
select j.id job_id, j.project_id, j.request ->> 'suffix' as name, e.attempt_id, e.at, e.message
from jobs j cross join lateral (
  select attempt_id, at, message, code from events
  where job_id = j.id and code in ('attempt.needs_help', 'attempt.help_over')
  order by seq desc limit 1
) e
where j.finished_at is null and e.code = 'attempt.needs_help'
order by e.at limit :most
""")
_TURNS = text("select what, holder, ends_at from turns order by what")
_TOKENS = text("select region, kind, tokens, at from cloud_tokens order by region, kind")
_CIRCUITS = text("""
select region, failures, shut_until from cloud_circuits where failures > 0 order by region
""")
_VERSIONS = text("""
select (select version_num from alembic_version) as schema,
  current_setting('server_version') as postgres
""")
Rows = Sequence[RowMapping]


@dataclass(frozen=True, kw_only=True)
class ServiceStatusRows:
    """State of the service, as the queries return it."""

    replicas: list[Replica]
    work: Rows
    turns: Rows
    azure_reads: Rows
    tokens: Rows
    circuits: Rows
    help_wanted: Rows
    schema: str
    postgres: str


async def read_status(conn: AsyncConnection, now: datetime) -> ServiceStatusRows:
    """Return the state of the service at ``now``."""
    versions = (await conn.execute(_VERSIONS)).one()
    return ServiceStatusRows(
        replicas=await connected_replicas(conn),
        work=(await conn.execute(_WORK, {"now": now})).mappings().all(),
        turns=(await conn.execute(_TURNS)).mappings().all(),
        azure_reads=(await conn.execute(_AZURE_READS)).mappings().all(),
        tokens=(await conn.execute(_TOKENS)).mappings().all(),
        circuits=(await conn.execute(_CIRCUITS)).mappings().all(),
        help_wanted=(await conn.execute(_HELP, {"most": MAX_HELP_ROWS})).mappings().all(),
        schema=versions.schema,
        postgres=versions.postgres,
    )
