"""How the API shows files and running uploads: OpenAI's file with Rekindle's members."""

from typing import Any

from service.api.schemas.files import File, UploadProgress, Warning
from service.db.files import files
from service.db.files.uploads import Upload
from service.domain.reporting import result_file


def full_file(file: files.File) -> File:
    """Return one file with its warnings, the first of each kind with their lines."""
    return File(**_members(file), warnings=[Warning(**warning) for warning in file.warnings])


def brief_file(file: files.File) -> File:
    """Return a file as lists show it."""
    return File(**_members(file))


def _members(file: files.File) -> dict[str, Any]:
    return {
        "id": file.id,
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        **({} if file.purpose == result_file.PURPOSE else {"format": file.format}),
        **({"labels": file.labels} if file.labels else {}),
        **({"expires_at": int(file.expires_at.timestamp())} if file.expires_at else {}),
        "examples": file.examples,
        "counts": {
            "examples": file.examples,
            "tokens": file.tokens,
            "warnings": sum(file.warning_counts.values()),
            "warnings_by_code": file.warning_counts,
        },
    }


def running_upload(upload: Upload) -> File:
    """Return the file that an upload will become, with its progress."""
    received, how_far = upload.received_bytes, progress(upload)
    share = "" if how_far.percent is None else f" ({how_far.percent} %)"
    members: dict[str, Any] = {
        "id": upload.id,
        "bytes": received,
        "created_at": int(upload.created_at.timestamp()),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": "uploaded",
        "status_details": f"{received} bytes received{share}, {upload.examples} examples checked.",
        "progress": how_far,
    }
    return File(**members)


def progress(upload: Upload) -> UploadProgress:
    """Return the bytes received; for an upload in parts, the bytes checked."""
    expected, received = upload.expected_bytes, upload.received_bytes
    return UploadProgress(
        bytes=received,
        expected_bytes=expected,
        percent=round(min(100.0, 100 * received / expected), 1) if expected else None,
        examples=upload.examples,
        updated_at=int(upload.touched_at.timestamp()),
    )
