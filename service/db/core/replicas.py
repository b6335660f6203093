"""List the replicas of the service by their listening connections; there is no table.

A replica is listed only while its connection is open. PostgreSQL shows a role its own sessions,
and all replicas share one role.
"""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_MARK = "rekindle"
_UNKNOWN = "-"
_RELEASE, _NAME = 12, 30  # bytes; PostgreSQL keeps 63 of an application_name
_LISTENING = text("""
select application_name, backend_start from pg_stat_activity
where datname = current_database() and application_name like :ours
order by backend_start, application_name
""")


class Replica(NamedTuple):
    """A process of the service."""

    name: str
    command: str  # of `python -m service.main`: "api", "reconciler" or "all"
    release: str | None
    connected_at: datetime  # the connection is made again after the database was away


def name_of(host: str, nonce: str) -> str:
    """Return a unique name for a replica; the end of a host's name tells pods apart."""
    return f"{host[-(_NAME - 1 - len(nonce)) :]}-{nonce}"


def application_name(name: str, command: str, release: str | None) -> str:
    """Return the `application_name` of the replica's connection, which identifies it."""
    return f"{_MARK} {command} {(release or _UNKNOWN)[:_RELEASE]} {name}"


async def connected_replicas(conn: AsyncConnection) -> list[Replica]:
    """Return the replicas that listen now, the oldest connection first."""
    replicas = []
    for row in await conn.execute(_LISTENING, {"ours": f"{_MARK} %"}):
        _, command, release, name = row.application_name.split(" ", 3)
        release = None if release == _UNKNOWN else release
        replicas.append(Replica(name, command, release, row.backend_start))
    return replicas
