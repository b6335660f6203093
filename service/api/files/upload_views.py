"""How the API shows uploads in parts."""

from datetime import datetime
from typing import Literal

from service.api.files import file_views
from service.api.schemas.uploads import Upload, UploadPart
from service.db.files import files, upload_parts, uploads
from service.operations.files.uploads import UploadState, upload_id_from_file_id


def upload_view(state: UploadState, now: datetime) -> Upload:
    """Return one upload with its parts, or with its file."""
    if state.upload is None:
        assert state.file is not None
        return completed_upload(state.file)
    view = brief_upload(state.upload, now)
    return view.model_copy(update={"parts": [part_view(part) for part in state.parts]})


def brief_upload(upload: uploads.Upload, now: datetime) -> Upload:
    """Return an upload that has not become a file, without its parts."""
    expired = upload.has_expired(now)
    end_status: Literal["expired", "cancelled"] = "expired" if expired else "cancelled"
    return Upload(
        id=upload_id_from_file_id(upload.id),
        bytes=upload.expected_bytes or 0,
        created_at=int(upload.created_at.timestamp()),
        expires_at=int(upload.expires_at.timestamp()),
        filename=upload.filename,
        purpose=upload.purpose,
        status=end_status if expired or upload.given_up_at is not None else "pending",
        status_details=upload.refusal["message"] if upload.refusal else None,
        progress=file_views.progress(upload) if _is_completing(upload) else None,
    )


def completed_upload(file: files.File) -> Upload:
    """Return the upload that became this file."""
    return Upload(
        id=upload_id_from_file_id(file.id),
        bytes=file.bytes,
        created_at=int(file.created_at.timestamp()),
        expires_at=int((file.created_at + uploads.LIFE).timestamp()),
        filename=file.filename,
        purpose=file.purpose,
        status="completed",
        file=file_views.full_file(file),
    )


def part_view(row: upload_parts.UploadPartRow) -> UploadPart:
    """Return one part."""
    return UploadPart(
        id=row.id,
        created_at=int(row.created_at.timestamp()),
        upload_id=upload_id_from_file_id(row.upload_id),
        bytes=row.bytes,
        md5=row.md5,
    )


def _is_completing(upload: uploads.Upload) -> bool:
    return upload.claim is not None and upload.given_up_at is None
