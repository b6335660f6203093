"""API keys of a project."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from contract.choices import Scope
from service.api.schemas.base import Answer, Page, UnixTime

_LAST_SECOND = 253_402_300_799  # of the year 9999
_NAME = r"^[^\x00-\x1f\x7f]+$"


class KeyRequest(BaseModel):
    """Name, scope and expiry of a new key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_NAME),
    ]
    scope: Scope = Field(
        default=Scope.WRITE,
        strict=False,
        description="`read`: requests that change nothing. `write`: also those that do. "
        "`operator`: also those over all projects, in the operators' project.",
    )
    expires_at: int | None = Field(
        default=None,
        gt=0,
        le=_LAST_SECOND,
        description="Unix time in seconds. By default that of the key that makes it, or never.",
    )


class Key(Answer):
    """A key without its secret."""

    id: str
    object: Literal["api_key"] = "api_key"
    name: str
    hint: str
    """The key's last characters."""
    scope: Scope
    created_at: UnixTime
    created_by: str | None
    """Id of the key that created it; null: created by the operator of the service."""
    expires_at: UnixTime | None
    last_used_at: UnixTime | None
    """To within a minute."""


class NewKey(Key):
    """A new key. The secret is in this answer and in no other."""

    key: str


class KeyList(Page[Key]):
    """A page of keys, newest first."""


class KeyRevoked(Answer):
    """The key was revoked."""

    id: str
    object: Literal["api_key"] = "api_key"
    deleted: Literal[True] = True
    keys_left: int
