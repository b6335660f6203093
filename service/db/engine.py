"""URL -> engine; the one place that knows the driver."""

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

OVERFLOW = 10  # connections for a crowd, closed again after it


def make_engine(url: str, *, pool_size: int = 20) -> AsyncEngine:
    """An async engine on psycopg 3; ``url`` may be a plain postgresql:// one.

    Far fewer connections than steps under way: a step holds one for its transactions only, some
    milliseconds, and never over a call to Azure or Blob. Three processes with a full pool fit
    under PostgreSQL's usual 100.
    """
    return create_async_engine(
        driver_url(url), pool_size=pool_size, max_overflow=OVERFLOW, pool_pre_ping=True
    )


def driver_url(url: str) -> str:
    """The URL with the driver that service and Alembic share."""
    scheme, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
