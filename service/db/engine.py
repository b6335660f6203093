"""URL -> engine; the one place that knows the driver."""

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


def make_engine(url: str, *, pool_size: int = 20) -> AsyncEngine:
    """An async engine on psycopg 3; ``url`` may be a plain postgresql:// one."""
    return create_async_engine(driver_url(url), pool_size=pool_size, pool_pre_ping=True)


def driver_url(url: str) -> str:
    """The URL with the driver that service and Alembic share."""
    scheme, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
