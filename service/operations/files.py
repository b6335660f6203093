"""Uploads: validated line by line while they stream to Blob; nothing is kept of a bad one."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import files
from service.db.files import CONTAINER, File
from service.domain.dataset import ChatValidator, DatasetSummary
from service.domain.errors import FileInUse, FileNotFound, InvalidRequest
from service.domain.ids import new_id
from service.storage.store import BlobStore

PURPOSES = ("fine-tune",)


class Incoming(Protocol):
    """A file on its way in; the purpose may come before its bytes or after them."""

    @property
    def filename(self) -> str: ...

    @property
    def purpose(self) -> str | None: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


async def upload(
    engine: AsyncEngine, store: BlobStore, project_id: str, incoming: Incoming, now: datetime
) -> File:
    """Check and store a chat dataset; raises InvalidRequest with line numbers."""
    if incoming.purpose is not None:
        _known(incoming.purpose)
    file_id = new_id("file", now)
    validator = ChatValidator()
    verdict: list[DatasetSummary] = []
    await store.create_container(CONTAINER)
    await store.upload(CONTAINER, file_id, _checked(incoming, validator, verdict))
    (summary,) = verdict
    file = File(
        id=file_id,
        project_id=project_id,
        filename=incoming.filename,
        purpose=_known(incoming.purpose),
        bytes=summary.bytes,
        sha256=summary.sha256,
        examples=summary.examples,
        characters=summary.characters,
        mean_tokens=summary.mean_tokens,
        created_at=now,
    )
    async with engine.begin() as conn:
        await files.add(conn, file)
    return file


async def get(conn: AsyncConnection, project_id: str, file_id: str) -> File:
    """The file, or raise FileNotFound."""
    file = await files.find(conn, project_id, file_id)
    if file is None:
        raise _not_found(file_id)
    return file


async def delete(
    engine: AsyncEngine, store: BlobStore, project_id: str, file_id: str, now: datetime
) -> None:
    """Hide the file, then delete its bytes; raises FileInUse while a live job reads it."""
    async with engine.begin() as conn:
        if await files.lock(conn, project_id, file_id, shared=False) is None:
            raise _not_found(file_id)
        if await files.in_use(conn, file_id):
            raise FileInUse(
                f"File {file_id} is read by a job that is not over. Cancel the job or wait for it."
            )
        await files.mark_deleted(conn, file_id, now)
    await store.delete(CONTAINER, file_id)


async def _checked(
    incoming: Incoming, validator: ChatValidator, verdict: list[DatasetSummary]
) -> AsyncIterator[bytes]:
    """Pass the chunks on; a bad file raises before the blob is committed, so none appears."""
    async for chunk in incoming.chunks():
        validator.feed(chunk)
        yield chunk
    _known(incoming.purpose)
    verdict.append(validator.finish())


def _known(purpose: str | None) -> str:
    if purpose is None:
        raise InvalidRequest(
            "purpose: missing. Send 'fine-tune'.",
            code="missing_required_parameter",
            param="purpose",
        )
    if purpose not in PURPOSES:
        raise InvalidRequest(
            f"Purpose {purpose!r} is not supported. Use 'fine-tune'.", param="purpose"
        )
    return purpose


def _not_found(file_id: str) -> FileNotFound:
    return FileNotFound(f"No file {file_id}. List your files with GET /v1/files.")
