"""How many statements a request is: PostgreSQL writes them down for a moment, and they are counted.

BEGIN and COMMIT are statements too: each is a round trip.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rekindle.local import postgres

ASKED = 10  # requests, one after the other
_SECONDS = 0.5  # until every process of the server has read its settings


async def of(data: Path, ask: Callable[[], Awaitable[object]]) -> float:
    """Statements of one request, on connections that are warm."""
    await _log(data, "all")
    log = data / "server.log"
    before = _count(log)
    for _ in range(ASKED):
        await ask()
    found = _count(log) - before
    await _log(data, "none")
    return found / ASKED


async def _log(data: Path, which: str) -> None:
    postgres.psql(data, f"alter system set log_statement = '{which}'")
    postgres.psql(data, "select pg_reload_conf()")
    await asyncio.sleep(_SECONDS)


def _count(log: Path) -> int:
    said = log.read_text(errors="replace")
    return sum(said.count(f"LOG:  {kind}") for kind in ("statement: ", "execute "))
