"""Number of SQL statements per request, counted in the log of PostgreSQL.

Statement logging is on only while requests are counted. BEGIN and COMMIT count too, because each
is a round trip.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rekindle.local import postgres

REQUESTS = 10  # sequential requests per measurement
_SECONDS = 0.5  # until every server process has reloaded its settings


async def of(data: Path, ask: Callable[[], Awaitable[object]]) -> float:
    """Return the average number of SQL statements of one request.

    Args:
        data: Data folder of PostgreSQL, which holds `server.log`.
        ask: Sends one request over a connection that is already open.
    """
    await _log(data, "all")
    log = data / "server.log"
    before = _count(log)
    for _ in range(REQUESTS):
        await ask()
    statements = _count(log) - before
    await _log(data, "none")
    return statements / REQUESTS


async def _log(data: Path, level: str) -> None:
    postgres.run_sql(data, f"alter system set log_statement = '{level}'")
    postgres.run_sql(data, "select pg_reload_conf()")
    await asyncio.sleep(_SECONDS)


def _count(log: Path) -> int:
    text = log.read_text(errors="replace")
    return sum(text.count(f"LOG:  {kind}") for kind in ("statement: ", "execute "))
