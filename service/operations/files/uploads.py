"""Uploads in parts: OpenAI's Uploads API, resumable after a crash of the client or of a replica.

Parts are blocks staged in the blob of the later file; only completing the upload commits them. See
docs/adr/0061-multipart-uploads.md.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeGuard

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.files import files, upload_parts, uploads
from service.db.files.files import CONTAINER, File
from service.db.files.upload_parts import UploadPartRow
from service.db.files.uploads import Upload
from service.domain.datasets.dataset import DatasetLimits
from service.domain.errors import (
    InvalidRequest,
    PayloadTooLarge,
    RequestTimedOut,
    UploadIsOver,
    UploadNotFound,
)
from service.domain.ids import new_id
from service.operations.projects import quotas
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
PART_BYTES = 64 * 1024**2  # the largest part
MAX_PARTS = 10_000  # of an upload; of 8 GiB all blocks stay below Azure's 50,000
TOO_LARGE = f"data: a part has at most {PART_BYTES} bytes. Cut the file into more parts."

_UPLOAD_PREFIX = "upload-"
_FILE_PREFIX = "file-"


@dataclass(frozen=True, kw_only=True)
class Staging:
    """Limits on the parts that one process receives at once: each needs about 8 MiB of memory."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(16))
    spare_bytes: int = PART_BYTES  # of parts sent again, beside twice the file
    silence_timeout: timedelta = timedelta(seconds=30)  # of a client; then its slot is freed


@dataclass(frozen=True, kw_only=True)
class UploadIntent:
    """The file that a client announces before it sends the parts."""

    filename: str
    purpose: str
    bytes: int
    mime_type: str
    expires_after: int | None  # seconds


@dataclass(frozen=True, kw_only=True)
class UploadState:
    """An upload with its parts while they arrive, or with its file once it is completed."""

    upload: Upload | None  # None: it is completed
    parts: list[UploadPartRow] = field(default_factory=list)
    file: File | None = None


def upload_id_from_file_id(file_id: str) -> str:
    """Return the id of the upload that becomes this file."""
    return _UPLOAD_PREFIX + file_id.removeprefix(_FILE_PREFIX)


def file_id_from_upload_id(upload_id: str) -> str:
    """Return the id of the file that an upload becomes, or raise UploadNotFound."""
    if not upload_id.startswith(_UPLOAD_PREFIX):
        raise not_found(upload_id)
    return _FILE_PREFIX + upload_id.removeprefix(_UPLOAD_PREFIX)


async def create(
    engine: AsyncEngine,
    store: BlobStore,
    project_id: str,
    intent: UploadIntent,
    limits: DatasetLimits,
    now: datetime,
) -> Upload:
    """Begin an upload in parts; raises PayloadTooLarge for a file beyond the limit."""
    if intent.bytes > limits.max_upload_bytes:
        raise PayloadTooLarge(
            f"bytes: the limit for an upload in parts is {limits.max_upload_bytes} "
            "(REKINDLE_UPLOAD_MAX_BYTES). Send fewer rows.",
            param="bytes",
        )
    upload = Upload(
        id=new_id("file", now),
        project_id=project_id,
        filename=intent.filename,
        purpose=intent.purpose,
        expected_bytes=intent.bytes,
        received_bytes=0,
        examples=0,
        created_at=now,
        touched_at=now,
        mime_type=intent.mime_type,
        expires_after=intent.expires_after,
    )
    await store.create_container(CONTAINER)
    async with engine.begin() as conn:
        largest = limits.max_upload_bytes
        await quotas.require_room_for_file(conn, project_id, intent.bytes, largest)
        await uploads.add(conn, upload)
    return upload


async def get(conn: AsyncConnection, project_id: str, upload_id: str) -> UploadState:
    """Return the upload, or raise UploadNotFound."""
    file_id = file_id_from_upload_id(upload_id)
    upload = await uploads.find_in_parts(conn, project_id, file_id)
    if upload is not None:
        return UploadState(upload=upload, parts=await upload_parts.all_of(conn, file_id))
    file = await files.find(conn, project_id, file_id)  # after the upload, which becomes the file
    if file is None:
        raise not_found(upload_id)
    return UploadState(upload=None, file=file)


async def cancel(
    engine: AsyncEngine, store: BlobStore, project_id: str, upload_id: str, now: datetime
) -> Upload:
    """Cancel an upload and drop its bytes. Harmless when it is over without a file.

    Where the store does not answer the upload is cancelled anyway; a sweep drops the bytes.
    """
    file_id = file_id_from_upload_id(upload_id)
    async with engine.begin() as conn:
        upload = await uploads.find_in_parts(conn, project_id, file_id, lock=True)
        if upload is not None:
            await uploads.give_up(conn, file_id, now, claim=upload.claim)
            upload = await uploads.find_in_parts(conn, project_id, file_id)
        elif await files.find(conn, project_id, file_id) is not None:
            raise UploadIsOver(f"{upload_id} is completed. Delete its file: {file_id}.")
    if upload is None:
        raise not_found(upload_id)
    await discard(store, file_id)
    return upload


async def add_part(
    engine: AsyncEngine,
    store: BlobStore,
    project_id: str,
    upload_id: str,
    data: AsyncIterator[bytes],
    staging: Staging,
    now: Callable[[], datetime],
) -> UploadPartRow:
    """Stage a part. Sent again it is another part: the request to complete names one of them."""
    file_id = file_id_from_upload_id(upload_id)
    async with engine.connect() as conn:
        require_open(await uploads.find_in_parts(conn, project_id, file_id), upload_id, now())
    part_id, counter = new_id("part", now()), _PartCounter(staging.silence_timeout)
    async with staging.slots:
        staged = await store.stage(CONTAINER, file_id, part_id, counter.counted(data))
    part = UploadPartRow(
        id=part_id,
        upload_id=file_id,
        bytes=counter.bytes,
        md5=counter.md5.hexdigest(),
        blocks=staged.blocks,
        created_at=now(),
    )
    async with engine.begin() as conn:
        upload = await uploads.find_in_parts(conn, project_id, file_id, lock=True)
        if is_open(upload, now()):
            await _record_part(conn, upload, part, staging)
            return part
    if upload is not None and upload.given_up_at is not None:  # after its bytes were dropped
        await discard(store, file_id)
    require_open(upload, upload_id, now())
    return part


async def discard(store: BlobStore, file_id: str) -> None:
    """Drop the bytes of a cancelled upload, or leave them to the sweep."""
    try:
        await store.discard(CONTAINER, file_id)
    except StorageError as fault:
        log.warning("uploads.discard_put_off", extra={"file": file_id, "cause": str(fault)})


def is_open(upload: Upload | None, now: datetime) -> TypeGuard[Upload]:
    """Return whether the upload takes parts."""
    return not (
        upload is None
        or upload.given_up_at is not None
        or upload.claim is not None
        or upload.has_expired(now)
    )


def require_open(upload: Upload | None, upload_id: str, now: datetime) -> Upload:
    """Return the upload if it takes parts, or raise why it does not."""
    if is_open(upload, now):
        return upload
    if upload is None:
        raise not_found(upload_id)
    if upload.has_expired(now):
        reason = "expired: no part arrived for an hour. Begin a new upload: POST /v1/uploads"
    elif upload.given_up_at is not None:
        reason = "is cancelled. Begin a new upload: POST /v1/uploads"
    else:
        reason = "is being completed and takes no more parts"
    raise UploadIsOver(f"{upload_id} {reason}.")


def not_found(upload_id: str) -> UploadNotFound:
    """Return the error for an id that is unknown or forgotten."""
    return UploadNotFound(
        f"No upload {upload_id:.80}. It may have expired, or its file is deleted. "
        "Begin a new one: POST /v1/uploads."
    )


async def _record_part(
    conn: AsyncConnection, upload: Upload, part: UploadPartRow, staging: Staging
) -> None:
    count, total = await upload_parts.totals(conn, part.upload_id)
    if count >= MAX_PARTS:
        raise InvalidRequest(
            f"The upload has {MAX_PARTS} parts, the most that it may have. Send larger parts.",
            param="data",
        )
    if total + part.bytes > 2 * (upload.expected_bytes or 0) + staging.spare_bytes:
        raise InvalidRequest(
            f"The parts of this upload have {total} bytes, and its file {upload.expected_bytes}. "
            "Complete it with the parts that are there, or cancel it.",
            param="data",
        )
    await upload_parts.add(conn, part)
    await uploads.touch(conn, part.upload_id, part.created_at, 0, 0)


class _PartCounter:
    """Counts a part on its way to the store."""

    def __init__(self, silence: timedelta) -> None:
        self.bytes = 0
        self._silence = silence
        self.md5 = hashlib.md5(usedforsecurity=False)

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass the chunks on; raise for a part that is empty, too large or stalls."""
        async for chunk in _with_timeout(chunks, self._silence):
            self.bytes += len(chunk)
            self.md5.update(chunk)
            if self.bytes > PART_BYTES:
                raise PayloadTooLarge(TOO_LARGE, param="data")
            yield chunk
        if not self.bytes:
            raise InvalidRequest("data: the part is empty. Send at least one byte.", param="data")


async def _with_timeout(chunks: AsyncIterator[bytes], silence: timedelta) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(silence.total_seconds()):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestTimedOut(
                f"Nothing came of the part for {silence.total_seconds():g} seconds. Send it again."
            ) from None
        yield chunk
