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
PARALLEL_PARTS = 4
# The upload cannot be resumed after these.
_FINAL_ERRORS = (
    "invalid_file_format",
    "payload_too_large",
)
TRIES = 10  # per request: 45 s, in which a restarting service is back
_POLL_SECONDS = 2.0  # seconds between two polls of the checked rows
_CHECK_SECONDS = 600.0  # for the service to check the rows; then the request is repeated


class UploadView(Protocol):
    """Shows how far an upload is."""

    def show_sent(self, sent: int) -> None:
        """Show the number of bytes sent."""

    def show_checked(self, checked: int) -> None:
        """Show the number of bytes checked; all of them are sent."""

    def show_retry(self, attempt: Any) -> None:  # noqa: ANN401 - tenacity's state
        """Show that a request is repeated."""


def send_in_parts(
    client: ApiClient, path: Path, name: str, progress: UploadView, part_bytes: int = PART_BYTES
) -> Json:
    """Upload the file and return the file object; raises CliError, and a repeat resumes."""
    record = _UploadRecord.for_file(client, path, name)
    upload = _find_earlier(client, record) or _create_upload(client, path, name, record)
    if upload["status"] != "completed":
        received = {part["md5"]: part["id"] for part in upload.get("parts") or []}
        sender = _PartSender(client, upload["id"], received, progress)
        body = sender.send_parts(path, part_bytes)
        try:
            upload = _complete_upload(sender, body)
        except CliError as error:
            if error.code in _FINAL_ERRORS:
                record.path.unlink(missing_ok=True)
            raise
    record.path.unlink(missing_ok=True)
    file: Json = upload["file"]
    return file


@dataclass(frozen=True, kw_only=True)
class _UploadRecord:
    """The file that keeps the upload's id of one file version."""

    path: Path

    @classmethod
    def for_file(cls, client: ApiClient, path: Path, name: str) -> "_UploadRecord":
        """Return the note of this file, as it is now, in this project."""
        status, project = path.stat(), client.connection.project
        key: list[str | int | None] = [client.connection.url, project, str(path.resolve()), name]
        key += [status.st_size, status.st_mtime_ns]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return cls(path=Path(typer.get_app_dir("rekindle")) / "uploads" / digest[:32])

    def read(self) -> str | None:
        """Return the id that an earlier command left, or None."""
        return self.path.read_text() if self.path.exists() else None

    def write(self, upload_id: str) -> None:
        """Save the upload's id."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(upload_id)


class _PartSender:
    """Sends the parts of one upload."""

    def __init__(
        self, client: ApiClient, upload_id: str, received: dict[str, str], progress: UploadView
    ) -> None:
        self.client = client
        self.url = f"{UPLOADS}/{upload_id}"
        self.progress = progress
        self._received = received  # ids of parts that were received earlier, by MD5
        self._slots = BoundedSemaphore(PARALLEL_PARTS)  # of parts in memory
        self._lock, self._sent = Lock(), 0
        self._failed = False

    def send_parts(self, path: Path, part_bytes: int) -> Json:
        """Send what is missing and return the request that completes the upload."""
        digest = hashlib.md5(usedforsecurity=False)
        parts: list[Future[str]] = []
        with ThreadPoolExecutor(PARALLEL_PARTS) as pool:
            for data in self._read_parts(path, part_bytes):
                digest.update(data)
                parts.append(pool.submit(self._send_part, data))
            return {"part_ids": [part.result() for part in parts], "md5": digest.hexdigest()}

    def _read_parts(self, path: Path, part_bytes: int) -> Iterator[bytes]:
        with path.open("rb") as stream:
            while self._slots.acquire() and not self._failed:
                data = stream.read(part_bytes)
                if not data:
                    return
                yield data

    def _send_part(self, data: bytes) -> str:
        try:
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            part_id = self._received.pop(md5, None) or self._upload_part(data, md5)
        except BaseException:
            self._failed = True
            raise
        finally:
            self._slots.release()
        with self._lock:
            self._sent += len(data)
            self.progress.show_sent(self._sent)
        return part_id

    def _upload_part(self, data: bytes, md5: str) -> str:
        answer = self.client.send_with_retries(
            lambda: self._post_part(data), TRIES, on_retry=self.progress.show_retry
        )
        part: Json = answer.json()
        if part["md5"] != md5:
            raise CliError(
                f"Part {part['id']} was corrupted in transit.",
                "Run the command again; it sends this part again.",
                code="checksum_mismatch",
            )
        return str(part["id"])

    def _post_part(self, data: bytes) -> httpx.Response:
        files = {"data": ("part", data, "application/octet-stream")}
        with self.client.translate_errors():
            timeout = httpx.Timeout(60.0, read=_CHECK_SECONDS)
            return require_success(
                self.client.http.post(f"{self.url}/parts", files=files, timeout=timeout)
            )


def _create_upload(client: ApiClient, path: Path, name: str, record: _UploadRecord) -> Json:
    body = {"filename": name, "purpose": "fine-tune", "bytes": path.stat().st_size}
    upload = client.post(UPLOADS, body | {"mime_type": "application/jsonl"})
    record.write(upload["id"])
    return upload


def _find_earlier(client: ApiClient, record: _UploadRecord) -> Json | None:
    """Return the upload of an earlier command, or None if it cannot be resumed."""
    upload_id = record.read()
    if upload_id is None:
        return None
    try:
        upload = client.get(f"{UPLOADS}/{upload_id}")
    except CliError as error:
        if error.exit_code is not ExitCode.NOT_FOUND:
            raise
        return None
    return upload if upload["status"] in ("pending", "completed") else None


def _complete_upload(sender: _PartSender, body: Json) -> Json:
    """Complete the upload and show how many rows the service has checked."""
    client = sender.client
    with ThreadPoolExecutor(1) as pool:
        completing = pool.submit(
            client.post,
            f"{sender.url}/complete",
            body,
            response_seconds=_CHECK_SECONDS,
            tries=TRIES,
        )
        while not wait([completing], _POLL_SECONDS).done:
            with suppress(CliError):  # it is only for show
                progress = client.get(sender.url, tries=1).get("progress") or {}
                sender.progress.show_checked(int(progress.get("bytes", 0)))
        return completing.result()
