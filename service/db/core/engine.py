"""URL -> engine; the one place that knows the driver."""

from time import monotonic
from typing import Any

from sqlalchemy import Dialect, Pool, event, make_url
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

OVERFLOW = 10  # connections for a crowd, closed again after it
IDLE_SECONDS = 1.0  # after which a connection is tried before it is used
# A process that stands still within a transaction, or whose machine went without a word, holds its
# rows for so long at most; else for two hours, until TCP finds out.
FROZEN_SECONDS = 15
# A server whose machine went without a word answers nothing any more: what waits for it fails, and
# what is idle is closed, after 25 seconds; else after a quarter of an hour and after two hours.
_PATIENCE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
    "connect_timeout": 10,
}


def make_engine(url: str, *, pool_size: int = 20) -> AsyncEngine:
    """An async engine on psycopg 3; ``url`` may be a plain postgresql:// one.

    Far fewer connections than steps under way: a step holds one for its transactions only, some
    milliseconds, and never over a call to Azure or Blob. Three processes with a full pool fit
    under PostgreSQL's usual 100.
    """
    made = create_async_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=OVERFLOW,
        connect_args=patience(url) | {"options": _options(url)},
    )
    _try_the_idle(made.pool, made.dialect)
    return made


def reading(engine: AsyncEngine) -> AsyncEngine:
    """The same connections, for single queries: without BEGIN and ROLLBACK around each."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def driver_url(url: str) -> str:
    """The URL with the driver that service and Alembic share."""
    scheme, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url


def patience(url: str) -> dict[str, Any]:
    """How long each connection of ours waits for a server; what the URL says of its own holds."""
    given = make_url(driver_url(url)).query
    return {name: value for name, value in _PATIENCE.items() if name not in given}


def _options(url: str) -> str:
    """Of PostgreSQL's sessions; what the URL says of its own holds."""
    given = make_url(url).query.get("options", "")
    return f"-c idle_in_transaction_session_timeout={FROZEN_SECONDS}s {given}"


def _try_the_idle(pool: Pool, dialect: Dialect) -> None:
    """SQLAlchemy's pre-ping, but not of connections that were in use a moment ago.

    A ping is a third of what a small query costs. A server that went within that moment fails
    whoever asks it just then, as it would right after a ping.
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
