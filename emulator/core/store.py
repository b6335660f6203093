"""The emulator's memory on disk: SQLite, one line per row of the state.

A commit writes what changed since the last one, all of it or nothing, whenever the process is
killed. It is not synced to the disk: the VMs would not survive a power cut either.
"""

import fcntl
import json
import os
import sqlite3
from pathlib import Path
from typing import TextIO

from emulator.core.rows import from_plain, to_text
from emulator.core.state import KINDS, EmulatorState, InstanceRow

SCHEMA = "CREATE TABLE IF NOT EXISTS kept (path TEXT NOT NULL UNIQUE, body TEXT NOT NULL)"
PUT = "INSERT INTO kept VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET body = excluded.body"
TABLES = {kind.table: kind for kind in KINDS}
DELETE = "DELETE FROM kept WHERE path = ?"


class StateUnreadable(Exception):
    """The folder holds a state that this emulator cannot go on with."""


def occupy(folder: Path) -> TextIO:
    """Keep other emulators out of the folder until this file is closed, or this process ends."""
    file = (folder / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StateUnreadable(
            f"another emulator (process {holder}) has its state in {folder}. End that one, or "
            "choose another --state."
        ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


class StateFile:
    """The state, and the file that follows it."""

    def __init__(self, folder: Path) -> None:
        if (folder / "state.json").exists():
            raise _outdated(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "state.db"
        self._file = _open(self._path)
        self._number = self._path.stat().st_ino
        try:
            self.state = _load(self._file)
        except (IndexError, TypeError, ValueError) as error:
            raise _outdated(folder) from error
        self._changes = self.state.ledger.follow()

    def check_there(self) -> None:
        """Raise StateUnreadable when the file is gone: nothing written would be kept."""
        try:
            is_same = self._path.stat().st_ino == self._number
        except OSError:
            is_same = False
        if not is_same:
            raise StateUnreadable(
                f"{self._path} was deleted or replaced under this emulator, which ends: its VMs "
                "have no disks any more. Start it anew."
            )

    def commit(self) -> bool:
        """Write what changed; say whether anything did."""
        if not self._changes.touched:
            return False
        with self._file:  # one transaction; rolled back and still to be written if it fails
            removed = [(json.dumps(path),) for path in self._changes.removed]
            self._file.executemany(DELETE, removed)  # first: what came again comes last
            rows = ((path, self.state.row_at(path)) for path in self._changes.touched)
            lines = [(json.dumps(path), to_text(row)) for path, row in rows if row]
            self._file.executemany(PUT, lines)
        self._changes.clear()
        return True


def _outdated(folder: Path) -> StateUnreadable:
    text = f"{folder} holds the state of an older emulator. Delete the folder, or choose another."
    return StateUnreadable(text)


def _open(file: Path) -> sqlite3.Connection:
    file.touch(mode=0o600)  # custom data is in it; SQLite gives its other files the same mode
    connection = sqlite3.connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(SCHEMA)
    except sqlite3.DatabaseError as error:
        raise StateUnreadable(f"{file} cannot be read: {error}. Delete its folder.") from error
    return connection


def _load(file: sqlite3.Connection) -> EmulatorState:
    lines = file.execute("SELECT path, body FROM kept ORDER BY rowid").fetchall()
    rows = sorted(((json.loads(p), b) for p, b in lines), key=lambda line: len(line[0]))
    state = EmulatorState()
    for path, body in rows:
        kind = InstanceRow if len(path) > 2 else TABLES.get(path[0])
        if kind and (len(path) == 2 or path[1] in state.scale_sets):
            state.put(from_plain(kind, json.loads(body)))
    return state
