"""A PostgreSQL of the tests' own: one server per test process, made fresh, gone afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rekindle import postgres

# Nothing here outlives the tests, so nothing needs to reach the disk.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


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
