"""The one shape of every error."""

from pydantic import Field, JsonValue

from service.api.schemas.base import Answer, Stored


class Error(Stored):
    """What went wrong, and what to do next."""

    message: str
    type: str
    """Class of the error, for example `invalid_request_error`."""
    param: str | None
    """Member, query parameter or header at fault."""
    code: str | None
    """Stable name of the error; docs/troubleshooting.md explains each."""
    errors: list[dict[str, JsonValue]] = Field(default_factory=list)
    """Of an upload: the first faults, each with its line."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Of an upload: the number of faults of each kind."""


class ErrorResponse(Answer):
    """OpenAI's error envelope."""

    error: Error
