"""Files: uploads and their checks."""

from typing import Literal

from pydantic import Field, JsonValue

from service.api.schemas.base import Answer, Page, UnixTime, is_none


class Counts(Answer):
    """Counts of the check of the file."""

    examples: int
    tokens: int
    """Estimated tokens of the whole file."""
    warnings: int
    warnings_by_code: dict[str, int]


class Warning(Answer):
    """A valid row that is probably a mistake."""

    line: int
    code: str
    message: str


class UploadProgress(Answer):
    """Progress of an upload."""

    bytes: int
    expected_bytes: int | None
    percent: float | None
    examples: int
    updated_at: UnixTime


class File(Answer):
    """OpenAI's file, with the results of the check of its rows."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: UnixTime
    expires_at: UnixTime | None = Field(default=None, exclude_if=is_none)
    """When the file expires, unless a job reads it."""
    filename: str
    purpose: str
    status: Literal["uploaded", "processed"]
    """`uploaded` while bytes are still arriving."""
    status_details: str | None = Field(default=None, exclude_if=is_none)
    format: str | None = Field(default=None, exclude_if=is_none)
    """Format of the rows: `chat`, `preference`, `ranking`, `prompt` or `labelled`."""
    labels: list[str] | None = Field(default=None, exclude_if=is_none)
    examples: int | None = Field(default=None, exclude_if=is_none)
    counts: Counts | None = Field(default=None, exclude_if=is_none)
    warnings: list[Warning] | None = Field(default=None, exclude_if=is_none)
    """The first of each kind."""
    progress: UploadProgress | None = Field(default=None, exclude_if=is_none)


class FileList(Page[File]):
    """A page of files."""


class FileDeleted(Answer):
    """The file was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class Preview(Answer):
    """Rows as a model reads them."""

    object: Literal["file.preview"] = "file.preview"
    file: str
    model: str
    method: str
    max_seq_len: int
    splits_answers: bool
    data: list[dict[str, JsonValue]]
    """Rows with `line`, `examples` (segments of text and their kind) and `problems`."""
    has_more: bool
    next_line: int | None
