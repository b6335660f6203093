"""What is asked of PostgreSQL itself: whether it takes writes, and what time it has."""

from collections.abc import Callable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

MOST_SKEW = 5.0  # seconds; a lease lasts 6, and who is further ahead takes those that still hold
_ASKED = text("""
select current_setting('transaction_read_only')::bool
  or current_setting('default_transaction_read_only')::bool as read_only,
  cast(extract(epoch from clock_timestamp()) as float8) as clock
""")


async def takes_writes(conn: AsyncConnection) -> bool:
    """False for a standby, and for a server that was made read-only, as one whose disk fills up."""
    return not (await conn.execute(_ASKED)).one().read_only


async def fault(conn: AsyncConnection, wall: Callable[[], float]) -> str:
    """What is wrong and what to do; "" when all is well. ``wall``: this machine's clock."""
    before = wall()
    found = (await conn.execute(_ASKED)).one()
    if found.read_only:
        return (
            "PostgreSQL takes no writes: its disk is full, or this is a replica."
            ' See "PostgreSQL is full or read-only" in docs/runbook.md.'
        )
    return _of_clocks(found.clock, before, wall())


def _of_clocks(theirs: float, before: float, after: float) -> str:
    """``theirs`` was read between two looks at ours; however long the answer took is no skew."""
    ahead, behind = before - theirs, theirs - after
    if max(ahead, behind) <= MOST_SKEW:
        return ""
    how = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{behind:.0f} s behind"
    return (
        f"The clock of this machine is {how} PostgreSQL's, so leases and deadlines go wrong."
        " Have NTP set the clocks of both (`timedatectl` shows whether it does)."
    )
