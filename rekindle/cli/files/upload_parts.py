"""Upload a large file in parallel parts; after an interruption, only the missing ones.

The upload's id is kept in the user's application folder until the file is complete. Parts are
compared by MD5, so parts of an older version of the file are never reused.
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

from rekindle.cli.api_client import ApiClient, require_success
from rekindle.cli.errors import CliError, ExitCode

Json = dict[str, Any]
UPLOADS = "/uploads"
PART_BYTES = 16 * 1024**2
PARTS_AT_ONCE = 4
_REFUSED = ("invalid_file_format", "payload_too_large")  # the upload cannot be resumed after these
TRIES = 10  # per request: 45 s, in which a restarting service is back
_LOOK_SECONDS = 2.0  # seconds between two polls of the checked rows
_SECONDS_TO_JUDGE = 600.0  # for the service to check the rows; then the request is repeated


class UploadProgress(Protocol):
    """Shows how far an upload is."""

    def at(self, done: int) -> None:
        """Show the number of bytes sent."""

    def checking(self, done: int) -> None:
        """Show the number of bytes checked; all of them are sent."""

    def again(self, attempt: Any) -> None:  # noqa: ANN401 - tenacity's state
        """Show that a request is repeated."""


def send_in_parts(
    client: ApiClient, path: Path, name: str, progress: UploadProgress, part_bytes: int = PART_BYTES
) -> Json:
    """Upload the file and return the file object; raises CliError, and a repeat resumes."""
    note = _Note.of(client, path, name)
    upload = _find_earlier(client, note) or _begin(client, path, name, note)
    if upload["status"] != "completed":
        known = {part["md5"]: part["id"] for part in upload.get("parts") or []}
        sending = _Sending(client, upload["id"], known, progress)
        body = sending.send(path, part_bytes)
        try:
            upload = _complete(sending, body)
        except CliError as trouble:
            if trouble.code in _REFUSED:
                note.path.unlink(missing_ok=True)
            raise
    note.path.unlink(missing_ok=True)
    file: Json = upload["file"]
    return file


@dataclass(frozen=True, kw_only=True)
class _Note:
    """The file that keeps the upload's id of one file version."""

    path: Path

    @classmethod
    def of(cls, client: ApiClient, path: Path, name: str) -> "_Note":
        """Return the note of this file, as it is now, in this project."""
        found, project = path.stat(), client.connection.project
        key: list[str | int | None] = [client.connection.url, project, str(path.resolve()), name]
        key += [found.st_size, found.st_mtime_ns]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return cls(path=Path(typer.get_app_dir("rekindle")) / "uploads" / digest[:32])

    def read(self) -> str | None:
        """Return the id that an earlier command left, or None."""
        return self.path.read_text() if self.path.exists() else None

    def write(self, upload_id: str) -> None:
        """Save the upload's id."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(upload_id)


class _Sending:
    """Sends the parts of one upload."""

    def __init__(
        self, client: ApiClient, upload_id: str, known: dict[str, str], progress: UploadProgress
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
        answer = self.client.send_with_retries(
            lambda: self._post(data), TRIES, on_retry=self.progress.again
        )
        part: Json = answer.json()
        if part["md5"] != md5:
            raise CliError(
                f"Part {part['id']} was corrupted in transit.",
                "Run the command again; it sends this part again.",
                code="checksum_mismatch",
            )
        return str(part["id"])

    def _post(self, data: bytes) -> httpx.Response:
        files = {"data": ("part", data, "application/octet-stream")}
        with self.client.translate_errors():
            timeout = httpx.Timeout(60.0, read=_SECONDS_TO_JUDGE)
            return require_success(
                self.client.http.post(f"{self.url}/parts", files=files, timeout=timeout)
            )


def _begin(client: ApiClient, path: Path, name: str, note: _Note) -> Json:
    body = {"filename": name, "purpose": "fine-tune", "bytes": path.stat().st_size}
    upload = client.post(UPLOADS, body | {"mime_type": "application/jsonl"})
    note.write(upload["id"])
    return upload


def _find_earlier(client: ApiClient, note: _Note) -> Json | None:
    """Return the upload of an earlier command, or None if it cannot be resumed."""
    upload_id = note.read()
    if upload_id is None:
        return None
    try:
        upload = client.get(f"{UPLOADS}/{upload_id}")
    except CliError as trouble:
        if trouble.exit_code is not ExitCode.NOT_FOUND:
            raise
        return None
    return upload if upload["status"] in ("pending", "completed") else None


def _complete(sending: _Sending, body: Json) -> Json:
    """Complete the upload and show how many rows the service has checked."""
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
            with suppress(CliError):  # it is only for show
                progress = client.get(sending.url, tries=1).get("progress") or {}
                sending.progress.checking(int(progress.get("bytes", 0)))
        return completing.result()
