"""API keys: create, list, revoke and authenticate."""

from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Scope
from service.db.core.engine import reading
from service.db.core.notify import Listener
from service.db.projects import keys
from service.db.projects.keys import Caller, Key
from service.domain import tokens
from service.domain.errors import (
    ExpiredApiKey,
    InvalidApiKey,
    InvalidRequest,
    KeyNotFound,
    ProjectNotFound,
)
from service.domain.ids import new_id
from service.operations.core.cache import Cache
from service.operations.projects import operators

_CACHED_SECONDS, _MOST_CACHED = 10.0, 10_000
USE_INTERVAL = timedelta(minutes=1)  # one write per key and minute, not per request

_HEADER_HINT = "Send the header `Authorization: Bearer rk-...`"
_CREATE_HINT = (
    "A key of the same project makes another with POST /v1/api_keys; the operator of the service, "
    "with `python -m service.main key create --project NAME`."
)


async def create(
    conn: AsyncConnection,
    project: str,
    name: str,
    now: datetime,
    *,
    scope: Scope = Scope.WRITE,
    expires_at: datetime | None = None,
) -> str:
    """Create a key in a project (created if needed) and return it; it cannot be shown again."""
    project_id = await keys.project(conn, project, now)
    _, secret = await _write_key(conn, project_id, None, name, now, (scope, expires_at))
    return secret


async def create_for_token(
    conn: AsyncConnection,
    project_id: str,
    name: str,
    now: datetime,
    *,
    scope: Scope,
    expires_at: datetime,
) -> tuple[Key, str]:
    """Create a key for a sign-in; return its facts and the key itself."""
    return await _write_key(conn, project_id, None, name, now, (scope, expires_at))


async def add(
    conn: AsyncConnection,
    caller: Caller,
    name: str,
    now: datetime,
    *,
    scope: Scope,
    expires_at: datetime | None,
) -> tuple[Key, str]:
    """Create a key with another key; return its facts and the key, which is shown only once.

    It may do no more than the caller's key, and live no longer: else InsufficientScope,
    InvalidRequest.
    """
    operators.require_scope(caller.scope, scope)
    until, longest = expires_at or caller.expires_at, caller.expires_at
    if longest is not None and until is not None and until > longest:
        raise InvalidRequest(
            f"Your key expires at {_format_minute(longest)}, and a key that it creates cannot "
            "outlive it. Send an earlier expires_at, or none.",
            param="expires_at",
        )
    return await _write_key(conn, caller.project_id, caller.api_key_id, name, now, (scope, until))


async def _write_key(
    conn: AsyncConnection,
    project_id: str,
    created_by: str | None,
    name: str,
    now: datetime,
    grant: tuple[Scope, datetime | None],
) -> tuple[Key, str]:
    """Write a new key; ``grant`` is its scope and when it expires."""
    scope, expires_at = grant
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("expires_at is not in the future.", param="expires_at")
    secret = tokens.new_api_key()
    key = Key(
        id=new_id("key", now),
        project_id=project_id,
        name=name,
        hint=secret[-4:],
        created_at=now,
        last_used_at=None,
        revoked_at=None,
        scope=scope,
        expires_at=expires_at,
        created_by=created_by,
    )
    await keys.add(conn, key, tokens.key_digest(secret))
    return key, secret


async def find_project_id(conn: AsyncConnection, name: str) -> str:
    """Return the id of the project of that name, or raise ProjectNotFound."""
    project_id = await keys.find_project(conn, name)
    if project_id is None:
        raise ProjectNotFound(
            f"No project {name!r:.80}. Its first key makes it: key create --project."
        )
    return project_id


async def list_keys(conn: AsyncConnection, project_id: str) -> list[Key]:
    """Return all keys of a project that are not revoked, newest first."""
    return await keys.newest(conn, project_id, after=None, limit=None)


def describe_key(key: Key) -> str:
    """Describe a key in one line, for a terminal."""
    last_use = f"used {_format_minute(key.last_used_at)}" if key.last_used_at else "never used"
    creation = f"made {_format_minute(key.created_at)} by {key.created_by or 'key create'}"
    expiry = f"expires {_format_minute(key.expires_at)}" if key.expires_at else "never expires"
    return f"{key.id}  rk-...{key.hint}  {key.scope}  {creation}  {expiry}  {last_use}  {key.name}"


async def revoke(
    conn: AsyncConnection,
    project_id: str,
    key_id: str,
    now: datetime,
    by: Scope = Scope.OPERATOR,
) -> tuple[Key, int]:
    """Revoke the key; return it and the number of keys that the project has left.

    Revoking twice is harmless, and the last key can be revoked too (``_CREATE_HINT`` says how to
    get another). ``by``: the scope of the caller's key. Raises InsufficientScope if the other key
    may do more.
    """
    key = await keys.get(conn, project_id, key_id)
    if key is None:
        raise KeyNotFound(f"No API key {key_id:.80}. List yours with GET /v1/api_keys.")
    operators.require_scope(by, key.scope)
    await keys.revoke(conn, key_id, now)
    return key, await keys.count(conn, project_id)


def cache(listener: Listener) -> Cache:
    """Return a cache of keys that a revocation clears."""
    return Cache(listener, keys.TOPIC, seconds=_CACHED_SECONDS, most=_MOST_CACHED)


async def authenticate(
    engine: AsyncEngine, cache: Cache, authorization: str | None, now: datetime
) -> Caller:
    """Return the caller whom the Authorization header names, or raise InvalidApiKey.

    A key in ``cache`` is not looked up again.
    """
    secret = _parse_key(authorization)
    digest = tokens.key_digest(secret)
    key = await cache.get(digest, partial(_find_key, engine, digest, now))
    if key is None:
        raise InvalidApiKey(f"No API key of this service ends in {secret[-4:]!r}. {_CREATE_HINT}")
    if key.revoked_at is not None:
        raise InvalidApiKey(
            f"The API key {key.name!r} (it ends in {key.hint!r}) was revoked at "
            f"{_format_minute(key.revoked_at)}. Use another one. {_CREATE_HINT}"
        )
    if key.has_expired(now):
        assert key.expires_at is not None
        raise ExpiredApiKey(
            f"The API key {key.name!r} (it ends in {key.hint!r}) expired at "
            f"{_format_minute(key.expires_at)}. Use another one. {_CREATE_HINT}"
        )
    return Caller(
        api_key_id=key.id,
        project_id=key.project_id,
        scope=key.scope,
        expires_at=key.expires_at,
    )


async def _find_key(engine: AsyncEngine, digest: bytes, now: datetime) -> Key | None:
    """Return the key with this hash, if there is one, and record the use of a valid one."""
    async with reading(engine).connect() as conn:
        key = await keys.find(conn, digest)
    if key is None or key.revoked_at is not None or key.has_expired(now):
        return key
    if key.last_used_at is None or key.last_used_at < now - USE_INTERVAL:
        async with engine.begin() as conn:
            await keys.record_use(conn, key.id, now, now - USE_INTERVAL)
    return key


def _parse_key(authorization: str | None) -> str:
    """Return the key in the header, or raise InvalidApiKey where it cannot be one."""
    if not authorization:
        raise InvalidApiKey(f"No API key was sent. {_HEADER_HINT}. {_CREATE_HINT}")
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise InvalidApiKey(f"The Authorization header has no bearer key. {_HEADER_HINT}.")
    if not secret.startswith(tokens.KEY_PREFIX):
        raise InvalidApiKey(
            f"Keys of this service begin with {tokens.KEY_PREFIX!r}, and yours does not: "
            f"is it another service's, or in quotes? {_HEADER_HINT}."
        )
    return secret


def _format_minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
