"""Cache of teacher replies on disk, so that no reply is paid for twice.

SQLite with one transaction per reply: a killed command loses none, and two commands may share a
file.
"""

import json
import sqlite3
from pathlib import Path

from rekindle.cli.distil.teacher_messages import TeacherReply
from rekindle.cli.errors import CliError

_SCHEMA = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
_LOCK_SECONDS = 30.0  # seconds, for another command that writes


class ReplyCache:
    """Cached replies by the key of the request; close it after use."""

    def __init__(self, path: Path) -> None:
        """Open or create the cache; raise CliError if the file is not a cache."""
        self._path = path
        try:
            self._rows = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
            self._rows.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise self._cache_error(error) from error

    def get(self, key: str) -> TeacherReply | None:
        """Return the reply to a request; None if there is none."""
        try:
            row = self._rows.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._cache_error(error) from error
        return TeacherReply(**json.loads(row[0])) if row else None

    def put(self, key: str, reply: TeacherReply) -> None:
        """Save a reply; an earlier one is kept."""
        text = json.dumps(vars(reply))
        try:
            self._rows.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, text))
        except sqlite3.Error as error:
            raise self._cache_error(error) from error

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def _cache_error(self, error: sqlite3.Error) -> CliError:
        return CliError(
            f"{self._path}: {error}.",
            "Check free space and write permission, or pass another file with --cache.",
            code="broken_cache",
        )
