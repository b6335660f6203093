"""Uploads in parts."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from contract.strict import Strict
from service.api.schemas.base import Answer, UnixTime, is_none
from service.api.schemas.files import File, UploadProgress
from service.domain.storage.file_expiry import LONGEST_SECONDS, SHORTEST_SECONDS

_NAME = r"^[^\x00-\x1f\x7f]+$"
Md5 = Annotated[str, StringConstraints(pattern="^[0-9a-fA-F]{32}$")]


class ExpiresAfter(Strict):
    """When the file expires."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS)
    """Life of the file in seconds, from 1 hour to 30 days."""


class UploadRequest(Strict):
    """A file to upload in parts."""

    filename: Annotated[str, StringConstraints(max_length=255, pattern=_NAME)]
    """The name that the file will have."""
    purpose: Literal["fine-tune"]
    """What the file is for: `fine-tune`."""
    bytes: int = Field(ge=1)
    """Size of the whole file."""
    mime_type: Annotated[str, StringConstraints(max_length=255, pattern=_NAME)]
    """Media type of the file, such as `application/jsonl`; any is accepted."""
    expires_after: ExpiresAfter | None = None


class UploadCompletion(Strict):
    """The parts of the file in their order."""

    part_ids: list[str] = Field(min_length=1)
    """Ids of the parts, in the order of the file; parts that are not named are dropped."""
    md5: Md5 | None = None
    """MD5 of the whole file, hexadecimal, to verify it."""


class UploadPart(Answer):
    """A part that was received."""

    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: UnixTime
    upload_id: str
    bytes: int
    md5: str
    """MD5 of the part as it was received, hexadecimal."""


class Upload(Answer):
    """OpenAI's upload, with its parts or its file."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    """Size of the whole file."""
    created_at: UnixTime
    expires_at: UnixTime
    """An hour after the last part arrived."""
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    """`pending` also while the upload is being completed; then there is `progress`."""
    status_details: str | None = Field(default=None, exclude_if=is_none)
    """Why the rows were refused."""
    file: File | None = Field(default=None, exclude_if=is_none)
    """The file, once the upload is completed."""
    parts: list[UploadPart] | None = Field(default=None, exclude_if=is_none)
    """Parts received so far, oldest first; in the answer to GET only."""
    progress: UploadProgress | None = Field(default=None, exclude_if=is_none)
    """How much of the file is checked, while the upload is being completed."""
