"""Replies of teachers, kept on disk as soon as they are there: what is paid for is paid once.

SQLite, with a transaction for each: whoever is killed between two of them loses none, and two
commands may share a file.
"""

import json
import sqlite3
from pathlib import Path

from rekindle.cli.distil.teacher_messages import Reply
from rekindle.cli.errors import Trouble

_SCHEMA = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
_WAIT = 30.0  # seconds, for another command that writes


class Replies:
    """By the key of what was asked; close it when done."""

    def __init__(self, path: Path) -> None:
        """Raises Trouble for a file that is something else."""
        self._path = path
        try:
            self._rows = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
            self._rows.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def get(self, key: str) -> Reply | None:
        """What was answered; None where nothing was."""
        try:
            found = self._rows.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._broken(error) from error
        return Reply(**json.loads(found[0])) if found else None

    def put(self, key: str, reply: Reply) -> None:
        """Keep it; the first one stays."""
        told = json.dumps(vars(reply))
        try:
            self._rows.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, told))
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()

    def _broken(self, error: sqlite3.Error) -> Trouble:
        return Trouble(
            f"{self._path}: {error}.",
            "Is there room, and may its folder be written? Name another file with --cache.",
            code="broken_cache",
        )
