"""/v1/files: upload, list, get, content, delete."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from service.api.deps import Db, Now, PartsDep, Reader, Writer
from service.api.files import file_views, results
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.http.rate_limits import WorkKind
from service.api.http.responses import BYTES, as_download
from service.api.http.upload_form import FILE, PURPOSE, UploadForm
from service.api.schemas.files import File, FileDeleted, FileList
from service.db.files import files as rows
from service.db.files import uploads
from service.db.files.files import CONTAINER
from service.domain.errors import InvalidRequest
from service.domain.reporting.result_file import PURPOSE as PURPOSE_OF_RESULTS
from service.domain.storage.file_expiry import (
    ANCHOR,
    ANCHOR_FIELD,
    LONGEST_SECONDS,
    SECONDS_FIELD,
    SHORTEST_SECONDS,
)
from service.operations.files import files
from service.storage.store import BlobNotFound

router = APIRouter(prefix="/files", tags=["Files"])
_MAX_LIMIT = 10_000
# Purposes that OpenAI's files have and ours never: a list of them is empty.
_OTHER_OPENAI_PURPOSES = {"assistants", "assistants_output", "batch", "batch_output"}
_OTHER_OPENAI_PURPOSES |= {"evals", "user_data", "vision"}
_FORM = {  # read as it comes, so FastAPI cannot know it
    "type": "object",
    "required": [FILE, PURPOSE],
    "properties": {
        FILE: {"type": "string", "format": "binary"},
        PURPOSE: {"type": "string", "enum": list(files.PURPOSES)},
        ANCHOR_FIELD: {"type": "string", "enum": [ANCHOR]},
        SECONDS_FIELD: {
            "type": "integer",
            "minimum": SHORTEST_SECONDS,
            "maximum": LONGEST_SECONDS,
        },
    },
}
_BODY = {"requestBody": {"content": {"multipart/form-data": {"schema": _FORM}}, "required": True}}


@router.post("", operation_id="createFile", openapi_extra=_BODY)
async def upload(request: Request, parts: PartsDep, caller: Writer) -> File:
    """Validate a dataset line by line while it is uploaded, and store it."""
    engine, store, project = parts.engine, parts.store, caller.project_id
    form = UploadForm(request)
    with parts.concurrency.slot(WorkKind.UPLOAD, project):
        await form.find_file()
        file = await files.upload(engine, store, project, form, parts.limits, parts.now)
    return file_views.full_file(file)


@router.get("", operation_id="listFiles")
async def list_files(
    db: Db,
    caller: Reader,
    purpose: str | None = None,
    limit: int = _MAX_LIMIT,
    order: str = "desc",
    after: After = None,
    status: str = "processed",
) -> FileList:
    """List files, newest first unless ``order=asc``; ``status=uploaded`` lists running uploads."""
    if purpose is not None:
        _require_choice(
            "purpose",
            purpose,
            (*files.PURPOSES, PURPOSE_OF_RESULTS, *sorted(_OTHER_OPENAI_PURPOSES)),
        )
    _require_choice("order", order, ("asc", "desc"))
    _require_choice("status", status, ("processed", "uploaded"))
    if status == "uploaded":
        return await _list_running_uploads(
            db, caller.project_id, after, clamp_limit(limit, _MAX_LIMIT)
        )
    if after is not None and await rows.find(db, caller.project_id, after) is None:
        require_known_cursor(None, after)
    limit = clamp_limit(limit, _MAX_LIMIT)
    items = await rows.page(
        db,
        caller.project_id,
        purpose=purpose,
        after=after,
        limit=limit + 1,
        ascending=order == "asc",
    )
    return page(FileList, items, limit, file_views.brief_file)


@router.get("/{file_id}", operation_id="retrieveFile")
async def get(db: Db, caller: Reader, file_id: str) -> File:
    """Return one file, or the progress of its upload."""
    under_way = None
    file = await rows.find(db, caller.project_id, file_id)
    if file is None:
        under_way = await uploads.find(db, caller.project_id, file_id)
    if under_way is not None:
        return file_views.running_upload(under_way)
    return file_views.full_file(file or await files.get(db, caller.project_id, file_id))


@router.get("/{file_id}/content", operation_id="downloadFile", responses=BYTES)
async def content(
    parts: PartsDep, caller: Reader, file_id: str, accept: Annotated[str, Header()] = ""
) -> Response:
    """Return the bytes as they were uploaded; of a result file, its CSV in base64."""
    async with parts.reading.connect() as conn:
        file = await files.get(conn, caller.project_id, file_id)
    if file.purpose == PURPOSE_OF_RESULTS:
        return await results.result_content(parts, file, accept)
    try:
        await parts.store.properties(CONTAINER, file.id)
    except BlobNotFound:
        raise files.missing_bytes_error(file.id) from None
    stream = parts.store.stream(CONTAINER, file.id)
    headers = {"content-length": str(file.bytes), **as_download(file.filename)}
    return StreamingResponse(stream, media_type="application/octet-stream", headers=headers)


@router.delete("/{file_id}", operation_id="deleteFile")
async def delete(parts: PartsDep, caller: Writer, now: Now, file_id: str) -> FileDeleted:
    """Delete a file that no live job reads."""
    await files.delete(parts.engine, parts.store, caller.project_id, file_id, now)
    return FileDeleted(id=file_id)


async def _list_running_uploads(
    conn: AsyncConnection, project_id: str, after: str | None, limit: int
) -> FileList:
    """List running uploads; one that has ended or become a file is still a valid cursor."""
    items = await uploads.newest(conn, project_id, after=after, limit=limit + 1)
    return page(FileList, items, limit, file_views.running_upload)


def _require_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} is {value!r}: use {' or '.join(allowed)}.", param=name)
