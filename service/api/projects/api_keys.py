"""/v1/api_keys: create, list and revoke the keys of the caller's project."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from service.api.deps import Db, Now, Reader, Writer
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.http.requests import JsonRoute
from service.api.jobs.job_views import seconds
from service.api.schemas.keys import Key, KeyList, KeyRequest, KeyRevoked, NewKey
from service.db.projects import keys as rows
from service.operations.projects import keys, quotas

router = APIRouter(prefix="/api_keys", tags=["API keys"], route_class=JsonRoute)
_MAX_LIMIT = 100


@router.post("", operation_id="createApiKey")
async def create(db: Db, caller: Writer, now: Now, body: KeyRequest) -> NewKey:
    """Create an API key, which may do no more than yours and lives no longer.

    ``key`` is in this answer only: the service stores its hash alone.
    """
    await quotas.require_room_for_key(db, caller.project_id)
    until = None if body.expires_at is None else datetime.fromtimestamp(body.expires_at, UTC)
    key, secret = await keys.add(db, caller, body.name, now, scope=body.scope, expires_at=until)
    return NewKey(**key_members(key), key=secret)


@router.get("", operation_id="listApiKeys")
async def list_keys(db: Db, caller: Reader, limit: int = 20, after: After = None) -> KeyList:
    """List the keys that are not revoked, newest first."""
    if after is not None and await rows.get(db, caller.project_id, after) is None:
        require_known_cursor(None, after)
    limit = clamp_limit(limit, _MAX_LIMIT)
    items = await rows.newest(db, caller.project_id, after=after, limit=limit + 1)
    return page(KeyList, items, limit, _key)


@router.delete("/{key_id}", operation_id="revokeApiKey")
async def revoke(db: Db, caller: Writer, now: Now, key_id: str) -> KeyRevoked:
    """Revoke a key. The last one can be revoked too: see ``keys_left``."""
    key, remaining = await keys.revoke(db, caller.project_id, key_id, now, caller.scope)
    return KeyRevoked(id=key.id, keys_left=remaining)


def _key(key: rows.Key) -> Key:
    return Key(**key_members(key))


def key_members(key: rows.Key) -> dict[str, Any]:
    """Return the members of a key without its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "hint": f"rk-...{key.hint}",
        "scope": key.scope,
        "created_at": seconds(key.created_at),
        "created_by": key.created_by,
        "expires_at": seconds(key.expires_at),
        "last_used_at": seconds(key.last_used_at),
    }
