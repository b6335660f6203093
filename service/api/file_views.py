"""What the API shows of files and of uploads under way: OpenAI's file, and ours beside it."""

from typing import Any

from service.db.files import File
from service.db.uploads import Upload
from service.domain import results


def whole(file: File) -> dict[str, Any]:
    """One file with its warnings, the first of each kind with their lines."""
    return brief(file) | {"warnings": file.warnings}


def brief(file: File) -> dict[str, Any]:
    """As lists show it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        **({} if file.purpose == results.PURPOSE else {"format": file.format}),
        **({"labels": file.labels} if file.labels else {}),
        "examples": file.examples,
        "counts": {
            "examples": file.examples,
            "tokens": file.tokens,
            "warnings": sum(file.warning_counts.values()),
            "warnings_by_code": file.warning_counts,
        },
    }


def under_way(upload: Upload) -> dict[str, Any]:
    """The file that an upload will be, and how far it is."""
    expected, received = upload.expected_bytes, upload.received_bytes
    percent = round(min(100.0, 100 * received / expected), 1) if expected else None
    share = "" if percent is None else f" ({percent} %)"
    return {
        "id": upload.id,
        "object": "file",
        "bytes": received,
        "created_at": int(upload.created_at.timestamp()),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": "uploaded",
        "status_details": f"{received} bytes have come{share}, {upload.examples} examples checked.",
        "progress": {
            "bytes": received,
            "expected_bytes": expected,
            "percent": percent,
            "examples": upload.examples,
            "updated_at": int(upload.touched_at.timestamp()),
        },
    }
