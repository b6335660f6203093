"""Check PostgreSQL itself: whether it accepts writes, and whether its clock agrees."""

from collections.abc import Callable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

MOST_SKEW = 5.0  # seconds; a lease lasts 6: a clock further ahead takes leases that hold
_QUERY = text("""
select current_setting('transaction_read_only')::bool
  or current_setting('default_transaction_read_only')::bool as read_only,
  cast(extract(epoch from clock_timestamp()) as float8) as clock
""")


async def takes_writes(conn: AsyncConnection) -> bool:
    """Return whether the server accepts writes; False for a standby or a read-only server.

    Azure makes a server read-only when its disk fills up.
    """
    return not (await conn.execute(_QUERY)).one().read_only


async def find_fault(conn: AsyncConnection, wall: Callable[[], float]) -> str:
    """Return what is wrong and what to do, "" if nothing; ``wall``: this machine's clock."""
    before = wall()
    row = (await conn.execute(_QUERY)).one()
    if row.read_only:
        return (
            "PostgreSQL takes no writes: its disk is full, or this is a replica."
            ' See "PostgreSQL is full or read-only" in docs/runbook.md.'
        )
    return _describe_clock_skew(row.clock, before, wall())


def _describe_clock_skew(database_time: float, before: float, after: float) -> str:
    """Return what is wrong if the clocks differ by more than ``MOST_SKEW``, else "".

    ``database_time`` was read between ``before`` and ``after``, so a slow query is no skew.
    """
    ahead, behind = before - database_time, database_time - after
    if max(ahead, behind) <= MOST_SKEW:
        return ""
    how = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{behind:.0f} s behind"
    return (
        f"The clock of this machine is {how} PostgreSQL's, so leases and deadlines go wrong."
        " Have NTP set the clocks of both (`timedatectl` shows whether it does)."
    )
