"""PostgreSQL for tests: one new server per test process, deleted afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from alembic.config import Config

from rekindle.local import postgres
from service.db.schema.tables import metadata

ROOT = Path(__file__).resolve().parent.parent
# No data outlives the tests, so none needs to reach the disk.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
TABLES = [table.name for table in metadata.sorted_tables]
# For the few rows of one test, delete is thirty times as fast as truncate.
EMPTY = "; ".join(f"delete from {name}" for name in reversed(TABLES))
_LARGE = 2**20  # bytes, with dead rows
_LARGEST = """
select max(pg_relation_size(oid)) from pg_class
where relkind = 'r' and relnamespace = 'public'::regnamespace
"""
_FROM_ONE = """
select setval(format('%I.%I', schemaname, sequencename), 1, false) from pg_sequences
where schemaname = 'public'
"""


@contextmanager
def server() -> Iterator[Path]:
    """Run a server and yield its data folder."""
    home = Path(tempfile.mkdtemp(prefix="rekindle-tests-"))
    data = home / "postgres"
    try:
        postgres.create_cluster(data)
        postgres.start_server(data, *SETTINGS)
        try:
            yield data
        finally:
            postgres.stop_server(data)
    finally:
        shutil.rmtree(home)


def migrations(url: str) -> Config:
    """Return Alembic's configuration for the database at ``url``."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


class Emptier:
    """Empties a database after each test, over one connection.

    A new connection for each test would cost 12 ms more CPU, to read the catalog again.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)

    def empty(self) -> None:
        """Delete all rows; fail if the test left a transaction open."""
        try:
            self._empty()
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            self._connection = psycopg.connect(self._url, autocommit=True)  # the test ended it
            self._empty()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _empty(self) -> None:
        with self._connection.transaction():
            _empty(self._connection)


def _empty(connection: psycopg.Connection) -> None:
    connection.execute("set local lock_timeout = '5s'")
    connection.execute(f"lock table {', '.join(TABLES)} in exclusive mode")
    size = connection.execute(_LARGEST).fetchone()
    if size is not None and size[0] > _LARGE:
        connection.execute(f"truncate {', '.join(TABLES)} restart identity cascade")
    else:
        connection.execute(EMPTY)
        connection.execute(_FROM_ONE)
