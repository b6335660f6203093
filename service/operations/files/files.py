"""Upload files: validate them line by line while they stream to Blob; keep no invalid file."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.files import files, uploads
from service.db.files.files import CONTAINER, File
from service.db.files.uploads import Upload
from service.db.jobs import results
from service.domain.datasets.dataset import (
    DatasetLimits,
    DatasetSummary,
    DatasetValidator,
    as_dicts,
    too_large,
)
from service.domain.errors import (
    FileInUse,
    FileNotFound,
    InvalidRequest,
    MissingParameter,
    ServiceUnavailable,
)
from service.domain.ids import new_id
from service.operations.core import worker_thread
from service.operations.projects import quotas
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
PURPOSES = ("fine-tune",)
PROGRESS_INTERVAL = timedelta(seconds=2)

FORM_BYTES = 64 * 1024  # of a form, without its file


class IncomingFile(Protocol):
    """A file that is being uploaded; its purpose may come before its bytes or after them."""

    @property
    def filename(self) -> str: ...

    @property
    def purpose(self) -> str | None: ...

    @property
    def expected_bytes(self) -> int | None: ...

    def expires_after(self) -> int | None: ...  # seconds

    def chunks(self) -> AsyncIterator[bytes]: ...


async def upload(
    engine: AsyncEngine,
    store: BlobStore,
    project_id: str,
    incoming: IncomingFile,
    limits: DatasetLimits,
    now: Callable[[], datetime],
) -> File:
    """Validate and store a dataset; raises InvalidFile with line numbers.

    Writes the intent first, so that every replica sees the progress. The blob appears whole once
    the last line is valid; then the intent becomes the file.
    """
    _check_early(incoming, limits)
    recorder = _ProgressRecorder(engine, _intent(project_id, incoming, now()), now)
    async with engine.begin() as conn:
        size, largest = incoming.expected_bytes, limits.max_bytes
        await quotas.require_room_for_file(conn, project_id, size, largest)
        await uploads.add(conn, recorder.upload)
    try:
        validator = DatasetValidator(limits)
        verdict: list[DatasetSummary] = []
        await store.create_container(CONTAINER)
        stream = validate_chunks(incoming, validator, verdict, recorder)
        await store.upload(CONTAINER, recorder.upload.id, stream)
        (summary,) = verdict
        return await _store_file(
            engine, store, make_file(_with_form_fields(recorder.upload, incoming), summary)
        )
    except BaseException:
        with suppress(SQLAlchemyError):  # also an exhausted pool; the sweep deletes what is left
            async with engine.begin() as conn:
                await uploads.give_up(conn, recorder.upload.id, now())
        raise


async def get(conn: AsyncConnection, project_id: str, file_id: str) -> File:
    """Return the file, or raise FileNotFound."""
    file = await files.find(conn, project_id, file_id)
    if file is None:
        raise _not_found(file_id)
    return file


async def delete(
    engine: AsyncEngine, store: BlobStore, project_id: str, file_id: str, now: datetime
) -> None:
    """Hide the file, then delete its bytes; raises FileInUse while a live job reads it.

    Repeating is harmless. When the store does not answer, the file is hidden anyway, and a sweep
    deletes its bytes.
    """
    async with engine.begin() as conn:
        if await files.lock(conn, project_id, file_id) is not None:
            if not await _mark_deleted(conn, file_id, now):
                raise FileInUse(
                    f"File {file_id} is read by a job that is not over. "
                    "Cancel the job or wait for it."
                )
        elif not await files.was_deleted(conn, project_id, file_id):
            raise _not_found(file_id)
    await _delete_bytes(store, file_id)


async def expire(engine: AsyncEngine, now: datetime) -> list[str]:
    """Hide the expired files that no live job reads; a sweep deletes their bytes."""
    async with engine.connect() as conn:
        due = await files.expired(conn, now)
    file_ids = []
    for project_id, file_id in due:
        async with engine.begin() as conn:
            exists = await files.lock(conn, project_id, file_id) is not None
            if exists and await _mark_deleted(conn, file_id, now):
                file_ids.append(file_id)
    return file_ids


async def _mark_deleted(conn: AsyncConnection, file_id: str, now: datetime) -> bool:
    """Mark a locked file as deleted; return False while a live job reads it."""
    if await files.in_use(conn, file_id):
        return False
    await files.mark_deleted(conn, file_id, now)
    await results.forget(conn, file_id, now)
    return True


class _ProgressRecorder:
    """Writes the progress of an upload at most every two seconds."""

    def __init__(self, engine: AsyncEngine, upload: Upload, now: Callable[[], datetime]) -> None:
        self.upload = upload
        self._engine = engine
        self._now = now
        self._touched_at = upload.touched_at

    async def record_progress(self, received_bytes: int, examples: int) -> None:
        """Record the progress; raises ServiceUnavailable if the upload was abandoned."""
        now = self._now()
        if now - self._touched_at < PROGRESS_INTERVAL:
            return
        self._touched_at = now
        try:
            async with self._engine.begin() as conn:
                is_open = await uploads.touch(conn, self.upload.id, now, received_bytes, examples)
        except SQLAlchemyError as fault:  # only progress: the upload continues
            log.warning("files.progress_not_written", extra={"cause": str(fault)})
            return
        if not is_open:
            raise _abandoned_error()


def _check_early(incoming: IncomingFile, limits: DatasetLimits) -> None:
    """Refuse known faults before the first byte of the file is read."""
    if incoming.purpose is not None:
        _require_known_purpose(incoming.purpose)
    if (incoming.expected_bytes or 0) > limits.max_bytes + FORM_BYTES:
        raise too_large(limits)


def _intent(project_id: str, incoming: IncomingFile, now: datetime) -> Upload:
    return Upload(
        id=new_id("file", now),
        project_id=project_id,
        filename=incoming.filename,
        purpose=incoming.purpose or PURPOSES[0],
        expected_bytes=incoming.expected_bytes,
        received_bytes=0,
        examples=0,
        created_at=now,
        touched_at=now,
    )


async def validate_chunks(
    incoming: IncomingFile,
    validator: DatasetValidator,
    verdict: list[DatasetSummary],
    recorder: _ProgressRecorder,
) -> AsyncIterator[bytes]:
    """Pass the chunks on; an invalid file raises before the blob is committed."""
    received = 0
    async for chunk in incoming.chunks():
        # A line of 15 MiB takes seconds.
        if validator.pending_bytes + len(chunk) > worker_thread.LARGE_BYTES:
            await worker_thread.run_in_worker(validator.feed, chunk)
        else:
            validator.feed(chunk)
        received += len(chunk)
        yield chunk
        await recorder.record_progress(received, validator.examples)
    _require_known_purpose(incoming.purpose)
    incoming.expires_after()
    verdict.append(await worker_thread.run_in_worker(validator.finish))


def _with_form_fields(upload: Upload, incoming: IncomingFile) -> Upload:
    """Return the upload with the form fields that followed the file."""
    expires_after = incoming.expires_after()
    return replace(
        upload, purpose=_require_known_purpose(incoming.purpose), expires_after=expires_after
    )


def make_file(upload: Upload, summary: DatasetSummary) -> File:
    """Return the file that an upload becomes."""
    lifetime_s = upload.expires_after
    return File(
        id=upload.id,
        project_id=upload.project_id,
        filename=upload.filename,
        purpose=upload.purpose,
        bytes=summary.bytes,
        sha256=summary.sha256,
        examples=summary.examples,
        characters=summary.characters,
        mean_tokens=summary.mean_tokens,
        created_at=upload.created_at,
        warnings=as_dicts(summary.warnings),
        warning_counts=summary.warning_counts,
        longest=list(summary.longest),
        format=summary.format,
        members=summary.members,
        answers=summary.answers,
        labels=list(summary.labels),
        expires_at=None
        if lifetime_s is None
        else upload.created_at + timedelta(seconds=lifetime_s),
    )


async def _store_file(engine: AsyncEngine, store: BlobStore, file: File) -> File:
    async with engine.begin() as conn:
        if under_way := await uploads.end(conn, file.id):
            await files.add(conn, file)
    if not under_way:  # its row may be deleted, so that no sweep would find the blob
        await _delete_bytes(store, file.id)
        raise _abandoned_error()
    return file


async def _delete_bytes(store: BlobStore, file_id: str) -> None:
    """Delete the blob, or leave it to the sweep."""
    try:
        await store.delete(CONTAINER, file_id)
    except StorageError as fault:
        log.warning("files.delete_put_off", extra={"file": file_id, "cause": str(fault)})


def missing_bytes_error(file_id: str) -> FileNotFound:
    """Return the error for a file whose blob was deleted."""
    return FileNotFound(
        f"The blob of file {file_id} was deleted from the storage account. "
        "Restore it there (soft delete, versions), or upload the file again."
    )


def _abandoned_error() -> ServiceUnavailable:
    return ServiceUnavailable(
        "The upload stalled for too long and was abandoned. Upload the file again."
    )


def _require_known_purpose(purpose: str | None) -> str:
    if purpose is None:
        raise MissingParameter(
            "purpose: missing. Send 'fine-tune'.",
            param="purpose",
        )
    if purpose not in PURPOSES:
        raise InvalidRequest(
            f"Purpose {purpose!r} is not supported. Use 'fine-tune'.", param="purpose"
        )
    return purpose


def _not_found(file_id: str) -> FileNotFound:
    return FileNotFound(f"No file {file_id:.80}. List your files with GET /v1/files.")
