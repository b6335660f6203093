"""Complete uploads in parts: commit the parts to one blob, check it, and make it a file.

Several requests may complete one upload on several replicas, because a client repeats a request
that was not answered. One of them holds the claim; the others wait for its result. Another request
takes over a claim that goes silent. Each commit names the ETag from before the claim, so that a
late holder changes nothing (ADR 0061).
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.files import files, upload_parts, uploads
from service.db.files.files import CONTAINER, File
from service.db.files.upload_parts import UploadPartRow
from service.db.files.uploads import Upload
from service.domain.datasets.dataset import DatasetLimits, DatasetSummary, DatasetValidator
from service.domain.errors import (
    ChecksumMismatch,
    InvalidFile,
    InvalidRequest,
    PayloadTooLarge,
    UploadIsOver,
)
from service.operations.files.files import PROGRESS_INTERVAL, make_file
from service.operations.files.uploads import (
    discard,
    file_id_from_upload_id,
    not_found,
    require_open,
)
from service.storage.store import (
    BlobNotFound,
    BlobStore,
    PreconditionFailed,
    StagedPart,
)

log = logging.getLogger(__name__)
CLAIM_TIMEOUT = timedelta(seconds=60)  # a silent claim is taken over then


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A client's request to complete an upload."""

    project_id: str
    upload_id: str
    part_ids: Sequence[str]
    md5: str | None  # of the whole file, hexadecimal


@dataclass(frozen=True, kw_only=True)
class Completer:
    """Completes uploads with these external services."""

    engine: AsyncEngine
    store: BlobStore
    limits: DatasetLimits
    now: Callable[[], datetime]

    async def complete(self, request: Completion) -> File | None:
        """Return the file; None while another request completes the upload: retry later."""
        file_id, token = file_id_from_upload_id(request.upload_id), uuid4().hex
        async with self.engine.connect() as conn:
            if await uploads.find_in_parts(conn, request.project_id, file_id) is None:
                return await _find_completed(conn, request)
        etag = await self._read_etag(file_id)  # before the claim: see the module
        async with self.engine.begin() as conn:
            upload = await uploads.find_in_parts(conn, request.project_id, file_id, lock=True)
            if upload is None:
                return await _find_completed(conn, request)
            _require_claimable(upload, request, self.now())
            if upload.claim is not None and self.now() - upload.touched_at < CLAIM_TIMEOUT:
                return None
            parts = await _choose_parts(conn, upload, request)
            await uploads.claim(conn, file_id, token, self.now())
        return await self._complete_claimed(upload, parts, request, etag, token)

    async def _complete_claimed(
        self,
        upload: Upload,
        parts: Sequence[UploadPartRow],
        request: Completion,
        etag: str,
        token: str,
    ) -> File | None:
        try:
            summary = await self._check(upload, parts, request, etag, token)
            file = make_file(upload, summary)
            async with self.engine.begin() as conn:
                is_claimed = await uploads.end(conn, upload.id, claim=token)
                if is_claimed:
                    await files.add(conn, file)
        except (InvalidFile, PayloadTooLarge) as refused:
            await self._refuse(upload, token, refused)
            raise
        except (PreconditionFailed, BlobNotFound):  # taken over, or cancelled: retry
            await self._release(upload, token)
            return None
        except BaseException:
            await self._release(upload, token)
            raise
        return file if is_claimed else None

    async def _check(
        self,
        upload: Upload,
        parts: Sequence[UploadPartRow],
        request: Completion,
        etag: str,
        token: str,
    ) -> DatasetSummary:
        staged = [StagedPart(name=part.id, blocks=part.blocks) for part in parts]
        try:
            await self.store.commit(CONTAINER, upload.id, staged, if_match=etag)
        except BlobNotFound:
            raise UploadIsOver(
                f"The bytes of {request.upload_id} are no longer there: it was cancelled "
                "meanwhile, or deleted in the storage account. Begin a new upload: "
                "POST /v1/uploads."
            ) from None
        limits = replace(self.limits, max_bytes=self.limits.max_upload_bytes)
        check = _StreamCheck(DatasetValidator(limits), parts)
        reported_at = self.now()
        async for chunk in self.store.stream(CONTAINER, upload.id):
            await asyncio.to_thread(check.feed, chunk)  # a chunk takes longer than a loop may stop
            if self.now() - reported_at >= PROGRESS_INTERVAL:
                reported_at = self.now()
                await self._record_progress(upload, token, check)
        check.require_md5(request.md5)
        return await asyncio.to_thread(check.validator.finish)

    async def _record_progress(self, upload: Upload, token: str, check: "_StreamCheck") -> None:
        """Record the progress; raises PreconditionFailed when the claim is lost."""
        try:
            async with self.engine.begin() as conn:
                is_claimed = await uploads.touch(
                    conn,
                    upload.id,
                    self.now(),
                    check.bytes,
                    check.validator.examples,
                    claim=token,
                )
        except SQLAlchemyError as fault:  # only progress: the check continues
            log.warning("uploads.progress_not_written", extra={"cause": str(fault)})
            return
        if not is_claimed:
            raise PreconditionFailed(f"{upload.id} was cancelled or taken over")

    async def _refuse(
        self, upload: Upload, token: str, refused: InvalidFile | PayloadTooLarge
    ) -> None:
        async with self.engine.begin() as conn:
            refusal = {"message": refused.message, "param": refused.param, **refused.details}
            await uploads.give_up(conn, upload.id, self.now(), claim=token, refusal=refusal)
            current = await uploads.find_in_parts(conn, upload.project_id, upload.id)
        if current is not None and current.given_up_at is not None:
            await discard(self.store, upload.id)

    async def _release(self, upload: Upload, token: str) -> None:
        with suppress(SQLAlchemyError):  # then it is taken over once it is silent
            async with self.engine.begin() as conn:
                await uploads.release(conn, upload.id, token)

    async def _read_etag(self, file_id: str) -> str:
        try:
            return (await self.store.properties(CONTAINER, file_id)).etag
        except BlobNotFound:
            return ""


class _StreamCheck:
    """Checks a blob as it streams: the checksum of each part and of the whole, and the rows."""

    def __init__(self, validator: DatasetValidator, parts: Sequence[UploadPartRow]) -> None:
        self.validator = validator
        self.bytes = 0
        self._parts = list(reversed(parts))
        self._remaining_bytes = self._parts[-1].bytes  # of the part under way
        self._part_md5, self._file_md5 = _md5(), _md5()

    def feed(self, chunk: bytes) -> None:
        """Check the next bytes; raises what the validator does, or InvalidRequest."""
        self.bytes += len(chunk)
        self._file_md5.update(chunk)
        remaining = memoryview(chunk)
        while remaining:
            size = self._remaining_bytes
            piece, remaining = remaining[:size], remaining[size:]
            self._part_md5.update(piece)
            self._remaining_bytes -= len(piece)
            if not self._remaining_bytes:
                self._end_part()
        self.validator.feed(chunk)

    def require_md5(self, md5: str | None) -> None:
        """Raise InvalidRequest if the checksum of the whole differs from the client's."""
        digest = self._file_md5.hexdigest()
        if md5 is not None and md5.lower() != digest:
            raise ChecksumMismatch(
                f"md5: the parts in this order have the MD5 {digest}, not {md5}. Check the order "
                "of part_ids, or compare the md5 of each part (GET /v1/uploads/ID) and send those "
                "that differ again.",
                param="md5",
            )

    def _end_part(self) -> None:
        part = self._parts.pop()
        if self._part_md5.hexdigest() != part.md5:
            raise ChecksumMismatch(
                f"part_ids: {part.id} has other bytes in storage than were sent. "
                "Send this part again and complete with the new one.",
                param="part_ids",
            )
        self._remaining_bytes = self._parts[-1].bytes if self._parts else 0
        self._part_md5 = _md5()


def _require_claimable(upload: Upload, request: Completion, now: datetime) -> None:
    """Raise the stored refusal, or that the upload is over."""
    if upload.refusal is not None:
        raise _stored_error(upload.refusal)
    if upload.claim is None or upload.given_up_at is not None or upload.has_expired(now):
        require_open(upload, request.upload_id, now)


async def _find_completed(conn: AsyncConnection, request: Completion) -> File:
    """Return the file that an earlier request made."""
    file = await files.find(conn, request.project_id, file_id_from_upload_id(request.upload_id))
    if file is None:
        raise not_found(request.upload_id)
    return file


async def _choose_parts(
    conn: AsyncConnection, upload: Upload, request: Completion
) -> list[UploadPartRow]:
    """Return the named parts in order and forget the others, which the commit drops."""
    parts = {part.id: part for part in await upload_parts.all_of(conn, upload.id)}
    for part_id in request.part_ids:
        if part_id not in parts:
            raise InvalidRequest(
                f"part_ids: {part_id:.80} is not a part of {request.upload_id}, or an earlier "
                "request to complete dropped it. GET the upload for its parts; send missing ones "
                "again.",
                param="part_ids",
            )
    if len(set(request.part_ids)) < len(request.part_ids):
        raise InvalidRequest("part_ids: a part is named twice.", param="part_ids")
    chosen = [parts.pop(part_id) for part_id in request.part_ids]
    total = sum(part.bytes for part in chosen)
    if total != upload.expected_bytes:
        raise InvalidRequest(
            f"part_ids: these parts have {total} bytes together, and the upload was created with "
            f"{upload.expected_bytes}. Name all parts of the file, in order.",
            param="part_ids",
        )
    await upload_parts.drop(conn, list(parts))
    return chosen


def _stored_error(refusal: dict[str, Any]) -> InvalidRequest | PayloadTooLarge:
    if "errors" in refusal:
        return InvalidFile(refusal["message"], errors=refusal["errors"], counts=refusal["counts"])
    return PayloadTooLarge(refusal["message"], param=refusal["param"])


def _md5() -> Any:  # noqa: ANN401 - hashlib names no type for it
    return hashlib.md5(usedforsecurity=False)
