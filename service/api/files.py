"""/v1/files: upload, list, get, content, delete."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from service.api.deps import CallerDep, Db, Now, PartsDep
from service.api.pages import After, clamp, known, page
from service.api.upload_form import FILE, PURPOSE, UploadForm
from service.db import files as rows
from service.db.files import CONTAINER, File
from service.domain.errors import InvalidRequest
from service.operations import files

router = APIRouter(prefix="/files", tags=["files"])
_MOST = 10_000
_FORM = {  # read as it comes, so FastAPI cannot know it
    "type": "object",
    "required": [FILE, PURPOSE],
    "properties": {
        FILE: {"type": "string", "format": "binary"},
        PURPOSE: {"type": "string", "enum": list(files.PURPOSES)},
    },
}
_BODY = {"requestBody": {"content": {"multipart/form-data": {"schema": _FORM}}, "required": True}}


@router.post("", openapi_extra=_BODY)
async def upload(request: Request, parts: PartsDep, caller: CallerDep, now: Now) -> dict[str, Any]:
    """Check a chat dataset line by line while it comes, and keep it."""
    form = UploadForm(request)
    await form.find_file()
    return _shown(await files.upload(parts.engine, parts.store, caller.project_id, form, now))


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
