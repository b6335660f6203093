"""A PostgreSQL of the tests' own: one server per test process, made fresh, gone afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic.config import Config

from rekindle import postgres
from service.db.tables import metadata

ROOT = Path(__file__).resolve().parent.parent
# Nothing here outlives the tests, so nothing needs to reach the disk.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
# All rows of every table: of the few of one life thirty times as quick as to truncate.
EMPTY = "; ".join(f"delete from {table.name}" for table in reversed(metadata.sorted_tables))


@contextmanager
def server() -> Iterator[Path]:
    """A running server; yields its data folder."""
    home = Path(tempfile.mkdtemp(prefix="rekindle-tests-"))
    data = home / "postgres"
    try:
        postgres.initialize(data)
        postgres.start(data, *SETTINGS)
        try:
            yield data
        finally:
            postgres.stop(data)
    finally:
        shutil.rmtree(home)


def migrations(url: str) -> Config:
    """Alembic's configuration for the database at ``url``."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config
