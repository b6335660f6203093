"""/v1/uploads: files in parts, in parallel and through any replica."""

from fastapi import APIRouter, Request

from service.api.deps import Db, Now, Parts, PartsDep, Reader, Writer
from service.api.files import upload_views
from service.api.http.rate_limits import WorkKind
from service.api.http.requests import JsonRoute
from service.api.http.upload_form import UploadForm
from service.api.schemas.uploads import (
    Upload,
    UploadCompletion,
    UploadPart,
    UploadRequest,
)
from service.db.core import notify
from service.db.files import uploads as rows
from service.db.files.files import File
from service.domain.errors import PayloadTooLarge, ServiceUnavailable
from service.operations.files import uploads
from service.operations.files.files import FORM_BYTES
from service.operations.files.upload_completion import Completer, Completion

router = APIRouter(prefix="/uploads", tags=["Uploads"], route_class=JsonRoute)
DATA = "data"
_RECHECK_SECONDS = 5.0  # of an upload that another request completes
_FORM = {  # read as it comes, so FastAPI cannot know it
    "type": "object",
    "required": [DATA],
    "properties": {DATA: {"type": "string", "format": "binary"}},
}
_BODY = {"requestBody": {"content": {"multipart/form-data": {"schema": _FORM}}, "required": True}}


@router.post("", operation_id="createUpload")
async def create(parts: PartsDep, caller: Writer, now: Now, body: UploadRequest) -> Upload:
    """Begin a file in parts of at most 64 MiB. It expires an hour after the last one."""
    expiry = body.expires_after
    intent = uploads.UploadIntent(
        filename=body.filename,
        purpose=body.purpose,
        bytes=body.bytes,
        mime_type=body.mime_type,
        expires_after=expiry.seconds if expiry else None,
    )
    engine, store, project = parts.engine, parts.store, caller.project_id
    upload = await uploads.create(engine, store, project, intent, parts.limits, now)
    return upload_views.brief_upload(upload, now)


@router.get("/{upload_id}", operation_id="retrieveUpload")
async def get(db: Db, caller: Reader, now: Now, upload_id: str) -> Upload:
    """Return an upload with the parts received, so that a client can resume it after a crash."""
    return upload_views.upload_view(await uploads.get(db, caller.project_id, upload_id), now)


@router.post("/{upload_id}/parts", operation_id="addUploadPart", openapi_extra=_BODY)
async def add_part(request: Request, parts: PartsDep, caller: Writer, upload_id: str) -> UploadPart:
    """Add a part. Parts may be sent in parallel. One sent twice is two parts; name one of them."""
    form = UploadForm(request, file=DATA, fields=())
    if (form.expected_bytes or 0) > uploads.PART_BYTES + FORM_BYTES:
        raise PayloadTooLarge(uploads.TOO_LARGE, param=DATA)
    with parts.concurrency.slot(WorkKind.PART, caller.project_id):
        await form.find_file()
        row = await uploads.add_part(
            parts.engine,
            parts.store,
            caller.project_id,
            upload_id,
            form.chunks(),
            parts.staging,
            parts.now,
        )
    return upload_views.part_view(row)


@router.post("/{upload_id}/complete", operation_id="completeUpload")
async def complete(
    parts: PartsDep, caller: Writer, upload_id: str, body: UploadCompletion
) -> Upload:
    """Validate the whole file and store it. Repeating the request is harmless."""
    completion = Completion(
        project_id=caller.project_id,
        upload_id=upload_id,
        part_ids=body.part_ids,
        md5=body.md5,
    )
    with parts.concurrency.slot(WorkKind.UPLOAD, caller.project_id):
        return upload_views.completed_upload(await _complete_upload(parts, completion))


@router.post("/{upload_id}/cancel", operation_id="cancelUpload")
async def cancel(parts: PartsDep, caller: Writer, now: Now, upload_id: str) -> Upload:
    """End an upload and delete its bytes."""
    engine, store, project = parts.engine, parts.store, caller.project_id
    upload = await uploads.cancel(engine, store, project, upload_id, now)
    return upload_views.brief_upload(upload, now)


async def _complete_upload(parts: Parts, completion: Completion) -> File:
    """Complete the upload, or wait for the request that does."""
    completer = Completer(
        engine=parts.engine, store=parts.store, limits=parts.limits, now=parts.now
    )
    topic = rows.topic(uploads.file_id_from_upload_id(completion.upload_id))
    with parts.drain.polling(topic) as changed:
        while (file := await completer.complete(completion)) is None:
            if parts.drain.has_begun:
                raise ServiceUnavailable(
                    "The service is shutting down while the upload is being completed. "
                    "Complete it again."
                )
            await notify.wait(changed, _RECHECK_SECONDS)
    return file
