"""/v1/api_keys: a key makes, lists and revokes the keys of its own project."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, StringConstraints

from service.api.deps import CallerDep, Db, Now
from service.api.pages import After, clamp, known, page
from service.db import keys as rows
from service.db.keys import Key
from service.operations import keys

router = APIRouter(prefix="/api_keys", tags=["keys"])
_MOST = 100
_NAME = r"^[^\x00-\x1f\x7f]+$"


class KeyRequest(BaseModel):
    """What POST takes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_NAME),
    ]


@router.post("")
async def create(db: Db, caller: CallerDep, now: Now, asked: KeyRequest) -> dict[str, Any]:
    """A fresh key. ``key`` is in this answer and in no other: it is kept only as a hash."""
    key, secret = await keys.add(db, caller.project_id, asked.name, now)
    return _shown(key) | {"key": secret}


@router.get("")
async def list_keys(
    db: Db, caller: CallerDep, limit: int = 20, after: After = None
) -> dict[str, Any]:
    """Newest first, without those that are revoked."""
    if after is not None and await rows.get(db, caller.project_id, after) is None:
        known(None, after)
    limit = clamp(limit, _MOST)
    found = await rows.newest(db, caller.project_id, after=after, limit=limit + 1)
    return page(found, limit, _shown)


@router.delete("/{key_id}")
async def revoke(db: Db, caller: CallerDep, now: Now, key_id: str) -> dict[str, Any]:
    """From now on the key opens nothing. The last one can go too: see ``keys_left``."""
    key, left = await keys.revoke(db, caller.project_id, key_id, now)
    return {"id": key.id, "object": "api_key", "deleted": True, "keys_left": left}


def _shown(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "object": "api_key",
        "name": key.name,
        "hint": f"rk-...{key.hint}",
        "created_at": int(key.created_at.timestamp()),
        "last_used_at": None if key.last_used_at is None else int(key.last_used_at.timestamp()),
    }
