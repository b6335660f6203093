"""Models that all answers share: strict models, money, time, pages, errors."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, JsonValue

from contract.described import Described

T = TypeVar("T")

UnixTime = Annotated[int, Field(description="Unix time in seconds.", examples=[1790000000])]
Money = Annotated[str, Field(description="US dollars as a decimal string.", examples=["12.3400"])]


class Answer(Described):
    """A JSON object that the service answers with; it has its declared members only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stored(Described):
    """A part of an answer as it was stored; rows of other releases may have other members."""

    model_config = ConfigDict(extra="allow", frozen=True)


def is_none(value: object) -> bool:
    """Return whether a member is left out: OpenAI's optional members are never null."""
    return value is None


class Page(Answer, Generic[T]):
    """A page of a list. For the next page send `after=last_id` while `has_more` is true."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Percentiles(Answer):
    """The 10th, 50th and 90th percentile, as Unix times."""

    p10: UnixTime
    p50: UnixTime
    p90: UnixTime


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
