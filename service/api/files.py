"""/v1/files: upload, list, get, content, delete."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import StreamingResponse

from service.api.deps import CallerDep, Db, Now, PartsDep
from service.api.pages import After, clamp, known, page
from service.db import files as rows
from service.db.files import CONTAINER, File
from service.domain.errors import InvalidRequest
from service.operations import files

router = APIRouter(prefix="/files", tags=["files"])
_CHUNK = 1024 * 1024
_MOST = 10_000


@router.post("")
async def upload(
    parts: PartsDep,
    caller: CallerDep,
    now: Now,
    file: UploadFile,
    purpose: Annotated[str, Form()],
) -> dict[str, Any]:
    """Check a chat dataset line by line and keep it."""
    name = file.filename or "upload"
    kept = await files.upload(
        parts.engine, parts.store, caller.project_id, name, purpose, _chunks(file), now
    )
    return _shown(kept)


@router.get("")
async def list_files(
    db: Db,
    caller: CallerDep,
    purpose: str | None = None,
    limit: int = _MOST,
    order: str = "desc",
    after: After = None,
) -> dict[str, Any]:
    """Newest first, unless ``order=asc``."""
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order is {order!r}: use asc or desc.", param="order")
    if after is not None and await rows.find(db, caller.project_id, after) is None:
        known(None, after)
    limit = clamp(limit, _MOST)
    found = await rows.page(
        db,
        caller.project_id,
        purpose=purpose,
        after=after,
        limit=limit + 1,
        ascending=order == "asc",
    )
    return page(found, limit, _shown)


@router.get("/{file_id}")
async def get(db: Db, caller: CallerDep, file_id: str) -> dict[str, Any]:
    """One file's facts."""
    return _shown(await files.get(db, caller.project_id, file_id))


@router.get("/{file_id}/content")
async def content(parts: PartsDep, caller: CallerDep, file_id: str) -> StreamingResponse:
    """The bytes as they were uploaded."""
    async with parts.engine.connect() as conn:
        file = await files.get(conn, caller.project_id, file_id)
    stream = parts.store.stream(CONTAINER, file.id)
    headers = {"content-length": str(file.bytes)}
    return StreamingResponse(stream, media_type="application/octet-stream", headers=headers)


@router.delete("/{file_id}")
async def delete(parts: PartsDep, caller: CallerDep, now: Now, file_id: str) -> dict[str, Any]:
    """Delete a file that no live job reads."""
    await files.delete(parts.engine, parts.store, caller.project_id, file_id, now)
    return {"id": file_id, "object": "file", "deleted": True}


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(_CHUNK):
        yield chunk


def _shown(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "examples": file.examples,
    }
