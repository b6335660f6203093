"""Sends a large file in parts: several at a time, and after an interruption only what is missing.

The id of the upload is kept in the user's folder until the file is complete. Parts are compared by
their MD5, so a file that was changed meanwhile is never mixed with what it was.
"""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Protocol

import httpx
import typer

from rekindle.cli.api_client import Client, checked
from rekindle.cli.errors import ExitCode, Trouble

Json = dict[str, Any]
UPLOADS = "/uploads"
PART_BYTES = 16 * 1024**2
PARTS_AT_ONCE = 4
_REFUSED = ("invalid_file_format", "payload_too_large")  # then nothing is left to go on with
TRIES = 10  # of a request; a service that restarts is back within the 45 s that they take
_LOOK_SECONDS = 2.0  # between two looks at how many rows are checked
_SECONDS_TO_JUDGE = 600.0  # that the service may need for the rows; then the request is repeated


class Progress(Protocol):
    """Shows how far an upload is."""

    def at(self, done: int) -> None:
        """Show the number of bytes sent."""

    def checking(self, done: int) -> None:
        """Show the number of bytes checked; all of them are sent."""

    def again(self, attempt: Any) -> None:  # noqa: ANN401 - tenacity's state
        """Show that a request is repeated."""


def send_in_parts(
    client: Client, path: Path, name: str, progress: Progress, part_bytes: int = PART_BYTES
) -> Json:
    """Return the file object; raises Trouble, after which a repetition goes on."""
    note = _Note.of(client, path, name)
    upload = _find_earlier(client, note) or _begin(client, path, name, note)
    if upload["status"] != "completed":
        known = {part["md5"]: part["id"] for part in upload.get("parts") or []}
        sending = _Sending(client, upload["id"], known, progress)
        body = sending.send(path, part_bytes)
        try:
            upload = _complete(sending, body)
        except Trouble as trouble:
            if trouble.code in _REFUSED:
                note.path.unlink(missing_ok=True)
            raise
    note.path.unlink(missing_ok=True)
    file: Json = upload["file"]
    return file


@dataclass(frozen=True, kw_only=True)
class _Note:
    """Where the id of the upload of one file, as it is now, is kept."""

    path: Path

    @classmethod
    def of(cls, client: Client, path: Path, name: str) -> "_Note":
        """The note of this file as it is now, in this project."""
        found, project = path.stat(), client.connection.project
        key: list[str | int | None] = [client.connection.url, project, str(path.resolve()), name]
        key += [found.st_size, found.st_mtime_ns]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return cls(path=Path(typer.get_app_dir("rekindle")) / "uploads" / digest[:32])

    def read(self) -> str | None:
        """Return the id, if an earlier command has left one."""
        return self.path.read_text() if self.path.exists() else None

    def write(self, upload_id: str) -> None:
        """Keep the id."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(upload_id)


class _Sending:
    """The parts of one upload on their way."""

    def __init__(
        self, client: Client, upload_id: str, known: dict[str, str], progress: Progress
    ) -> None:
        self.client = client
        self.url = f"{UPLOADS}/{upload_id}"
        self.progress = progress
        self._known = known  # ids of parts that were received earlier, by MD5
        self._slots = BoundedSemaphore(PARTS_AT_ONCE)  # of parts in memory
        self._lock, self._done = Lock(), 0
        self._failed = False

    def send(self, path: Path, part_bytes: int) -> Json:
        """Send what is missing and return the request that completes the upload."""
        whole = hashlib.md5(usedforsecurity=False)
        parts: list[Future[str]] = []
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            for data in self._pieces(path, part_bytes):
                whole.update(data)
                parts.append(pool.submit(self._send, data))
            return {"part_ids": [part.result() for part in parts], "md5": whole.hexdigest()}

    def _pieces(self, path: Path, part_bytes: int) -> Iterator[bytes]:
        with path.open("rb") as stream:
            while self._slots.acquire() and not self._failed:
                data = stream.read(part_bytes)
                if not data:
                    return
                yield data

    def _send(self, data: bytes) -> str:
        try:
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            part_id = self._known.pop(md5, None) or self._send_new(data, md5)
        except BaseException:
            self._failed = True
            raise
        finally:
            self._slots.release()
        with self._lock:
            self._done += len(data)
            self.progress.at(self._done)
        return part_id

    def _send_new(self, data: bytes, md5: str) -> str:
        answer = self.client.repeated(lambda: self._post(data), TRIES, before=self.progress.again)
        part: Json = answer.json()
        if part["md5"] != md5:
            raise Trouble(
                f"{part['id']} arrived with other bytes than were sent.",
                "Repeat the command: it sends this part again.",
                code="checksum_mismatch",
            )
        return str(part["id"])

    def _post(self, data: bytes) -> httpx.Response:
        files = {"data": ("part", data, "application/octet-stream")}
        with self.client.translated():
            timeout = httpx.Timeout(60.0, read=_SECONDS_TO_JUDGE)
            return checked(self.client.http.post(f"{self.url}/parts", files=files, timeout=timeout))


def _begin(client: Client, path: Path, name: str, note: _Note) -> Json:
    body = {"filename": name, "purpose": "fine-tune", "bytes": path.stat().st_size}
    upload = client.post(UPLOADS, body | {"mime_type": "application/jsonl"})
    note.write(upload["id"])
    return upload


def _find_earlier(client: Client, note: _Note) -> Json | None:
    """Return the upload of an earlier command, unless it is over without a file."""
    upload_id = note.read()
    if upload_id is None:
        return None
    try:
        upload = client.get(f"{UPLOADS}/{upload_id}")
    except Trouble as trouble:
        if trouble.exit_code is not ExitCode.NOT_FOUND:
            raise
        return None
    return upload if upload["status"] in ("pending", "completed") else None


def _complete(sending: _Sending, body: Json) -> Json:
    """Have the rows checked, and show how far that is."""
    client = sending.client
    with ThreadPoolExecutor(1) as pool:
        completing = pool.submit(
            client.post,
            f"{sending.url}/complete",
            body,
            patience=_SECONDS_TO_JUDGE,
            tries=TRIES,
        )
        while not wait([completing], _LOOK_SECONDS).done:
            with suppress(Trouble):  # it is only for show
                progress = client.get(sending.url, tries=1).get("progress") or {}
                sending.progress.checking(int(progress.get("bytes", 0)))
        return completing.result()
