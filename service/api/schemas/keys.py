"""API keys of a project."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from service.api.schemas.base import Answer, Page, UnixTime

_NAME = r"^[^\x00-\x1f\x7f]+$"


class KeyRequest(BaseModel):
    """What a new key is called."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_NAME),
    ]


class Key(Answer):
    """A key without its secret."""

    id: str
    object: Literal["api_key"] = "api_key"
    name: str
    hint: str
    """The key's last characters."""
    created_at: UnixTime
    last_used_at: UnixTime | None


class NewKey(Key):
    """A new key. The secret is in this answer and in no other."""

    key: str


class KeyList(Page[Key]):
    """A page of keys, newest first."""


class KeyRevoked(Answer):
    """The key opens nothing any more."""

    id: str
    object: Literal["api_key"] = "api_key"
    deleted: Literal[True] = True
    keys_left: int
