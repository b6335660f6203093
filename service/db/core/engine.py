"""Create database engines from URLs; the one place that knows the driver."""

from time import monotonic
from typing import Any

from sqlalchemy import Dialect, Pool, event, make_url
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

OVERFLOW = 10  # extra connections under load, closed after it
IDLE_SECONDS = 1.0  # after which an idle connection is pinged before use
# Longest time that a process holds row locks if it freezes within a transaction or its machine
# vanishes. By default TCP notices that after two hours.
FROZEN_SECONDS = 15
# If the server's machine vanishes, queries fail and idle connections close after 25 seconds. TCP's
# defaults are a quarter of an hour and two hours.
_TIMEOUTS = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
    "connect_timeout": 10,
}


def make_engine(url: str, *, pool_size: int = 20) -> AsyncEngine:
    """Create an async engine on psycopg 3; ``url`` may be a plain postgresql:// one.

    The pool is far smaller than the number of concurrent steps: a step holds a connection for its
    transactions only, some milliseconds, and never during a call to Azure or Blob. Three processes
    with a full pool fit under PostgreSQL's usual 100 connections.
    """
    engine = create_async_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=OVERFLOW,
        connect_args=connection_timeouts(url) | {"options": _options(url)},
    )
    _ping_idle_connections(engine.pool, engine.dialect)
    return engine


def reading(engine: AsyncEngine) -> AsyncEngine:
    """Return an engine on the same pool for single queries, without BEGIN and ROLLBACK."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def driver_url(url: str) -> str:
    """Return the URL with the driver that service and Alembic share."""
    scheme, remainder = url.split("://", 1)
    return f"postgresql+psycopg://{remainder}" if scheme in ("postgres", "postgresql") else url


def connection_timeouts(url: str) -> dict[str, Any]:
    """Return our default timeouts of a connection, without those that the URL sets."""
    query = make_url(driver_url(url)).query
    return {name: value for name, value in _TIMEOUTS.items() if name not in query}


def _options(url: str) -> str:
    """Return the options of PostgreSQL sessions; those of the URL come last and win."""
    options = make_url(url).query.get("options", "")
    return f"-c idle_in_transaction_session_timeout={FROZEN_SECONDS}s {options}"


def _ping_idle_connections(pool: Pool, dialect: Dialect) -> None:
    """Ping connections at checkout as SQLAlchemy's pre-ping does, but skip recently used ones.

    A ping costs a third of a small query. If the server vanishes within that moment, the next query
    fails, as it would right after a ping.
    """

    @event.listens_for(pool, "checkin")
    def note(_: Any, record: Any) -> None:  # noqa: ANN401 - the driver's
        record.info["used_at"] = monotonic()

    @event.listens_for(pool, "checkout")
    def ping(connection: Any, record: Any, _: Any) -> None:  # noqa: ANN401
        if monotonic() - record.info.get("used_at", monotonic()) < IDLE_SECONDS:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            if not dialect.is_disconnect(error, connection, None):
                raise
            raise InvalidatePoolError from error
