"""State folder of one local stack: its lock, ports and secrets.

Two stacks never share a folder; the lock is released when the process ends.
"""

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

HIGHEST_PORT = 65_535


class StackStartError(Exception):
    """The stack cannot start; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class StackPorts:
    """The four consecutive ports of a stack."""

    api: int
    arm: int
    blob: int
    metadata: int

    @classmethod
    def starting_at(cls, first: int) -> "StackPorts":
        """Return the ports of ``PORT=first``."""
        return cls(api=first, arm=first + 1, blob=first + 2, metadata=first + 3)

    def require_free(self) -> None:
        """Raise StackStartError if a port is invalid or in use."""
        if not 0 < self.api <= HIGHEST_PORT - 3:
            raise StackStartError(
                f"PORT={self.api} is invalid: the stack needs four consecutive ports. "
                f"Choose a number from 1024 to {HIGHEST_PORT - 3}: make up PORT=8080"
            )
        for name, port in asdict(self).items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise StackStartError(
                        f"port {port} (for {name}) is not available: {error.strerror}. "
                        f"Choose other ports: make up PORT={self.api + 100}"
                    ) from error


@dataclass(frozen=True)
class StateFolder:
    """A state folder. Its content may be deleted while no stack runs on it."""

    path: Path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; raise StackStartError if another stack has it."""
        with self._open_lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise StackStartError(
                    f"a stack is already running on {self.path} (process {lock.read().strip()}). "
                    "Stop it, or start a second one: make up STATE=another-folder PORT=9080"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _open_lock(self) -> TextIO:
        """Open the lock file; create the folder if needed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return (self / "lock").open("a+")
        except OSError as error:
            raise StackStartError(
                f"cannot write to the state folder {self.path}: {error.strerror}. "
                "Choose another folder: make up STATE=folder"
            ) from error

    def read_or_create_secret(
        self, name: str, generate: Callable[[], str] = secrets.token_urlsafe
    ) -> str:
        """Return a secret of this folder; create it at the first use."""
        path = self / name
        if not path.exists():
            write_private(path, generate())
        return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Write a file for its owner only, complete or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")  # two stacks may share a file
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(text)
    temporary.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write private JSON, complete or not at all."""
    write_private(path, json.dumps(value, indent=2) + "\n")
