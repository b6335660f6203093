"""API keys: made, listed, revoked, and looked at with every request."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import keys
from service.db.engine import reading
from service.db.keys import Caller, Key
from service.domain import tokens
from service.domain.errors import InvalidApiKey, KeyNotFound, ProjectNotFound
from service.domain.ids import new_id
from service.operations.kept import Kept

KEPT_SECONDS, MOST_KEPT = 10.0, 10_000
USE_NOTED_EVERY = timedelta(minutes=10)  # one write per key and ten minutes, not per request

_SEND = "Send the header `Authorization: Bearer rk-...`"
_MAKE = (
    "A key of the same project makes another with POST /v1/api_keys; whoever runs the service, "
    "with `python -m service.main key create --project NAME`."
)


async def create(conn: AsyncConnection, project: str, name: str, now: datetime) -> str:
    """Make a key in a project (made if need be) and return it; it cannot be shown again."""
    _, secret = await add(conn, await keys.project(conn, project, now), name, now)
    return secret


async def add(conn: AsyncConnection, project_id: str, name: str, now: datetime) -> tuple[Key, str]:
    """Make a key; return its facts, and the key itself, which cannot be shown again."""
    secret = tokens.new_api_key()
    key = Key(
        id=new_id("key", now),
        project_id=project_id,
        name=name,
        hint=secret[-4:],
        created_at=now,
        last_used_at=None,
        revoked_at=None,
    )
    await keys.add(conn, key, tokens.digest(secret))
    return key, secret


async def project(conn: AsyncConnection, name: str) -> str:
    """Id of the project of that name, or raise ProjectNotFound."""
    project_id = await keys.find_project(conn, name)
    if project_id is None:
        raise ProjectNotFound(
            f"No project {name!r:.80}. Its first key makes it: key create --project."
        )
    return project_id


async def every(conn: AsyncConnection, project_id: str) -> list[Key]:
    """All keys of a project that are not revoked, newest first."""
    return await keys.newest(conn, project_id, after=None, limit=None)


def in_words(key: Key) -> str:
    """One line about a key, for a terminal."""
    used = f"used {key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never used"
    return f"{key.id}  rk-...{key.hint}  made {key.created_at:%Y-%m-%d %H:%M}  {used}  {key.name}"


async def revoke(
    conn: AsyncConnection, project_id: str, key_id: str, now: datetime
) -> tuple[Key, int]:
    """From now on the key opens nothing; return it, and how many keys the project has left.

    To do it twice is harmless. The last key can go too: see ``_MAKE`` for the way back.
    """
    key = await keys.get(conn, project_id, key_id)
    if key is None:
        raise KeyNotFound(f"No API key {key_id:.80}. List yours with GET /v1/api_keys.")
    await keys.revoke(conn, key_id, now)
    return key, await keys.count(conn, project_id)


async def authenticate(
    engine: AsyncEngine, known: Kept[Key], authorization: str | None, now: datetime
) -> Caller:
    """Who sends this Authorization header, or raise InvalidApiKey that says what to send.

    A key that was ``known`` a moment ago is not looked up again.
    """
    secret = _secret(authorization)
    digest = tokens.digest(secret)
    key = known.find(digest) or await _look_up(engine, known, digest, now)
    if key is None:
        raise InvalidApiKey(f"No API key of this service ends in {secret[-4:]!r}. {_MAKE}")
    if key.revoked_at is not None:
        when = key.revoked_at.strftime("%Y-%m-%d %H:%M UTC")
        raise InvalidApiKey(
            f"The API key {key.name!r} (it ends in {key.hint!r}) was revoked at {when}. "
            f"Use another one. {_MAKE}"
        )
    return Caller(api_key_id=key.id, project_id=key.project_id)


async def _look_up(
    engine: AsyncEngine, known: Kept[Key], digest: bytes, now: datetime
) -> Key | None:
    """The key of that hash, if there is one; one that opens something is noted as used."""
    with known.reading(digest, keys.TOPIC) as keep:
        async with reading(engine).connect() as conn:
            key = await keys.find(conn, digest)
        if key is None or key.revoked_at is not None:
            return key
        if key.last_used_at is None or key.last_used_at < now - USE_NOTED_EVERY:
            async with engine.begin() as conn:
                await keys.touch(conn, key.id, now, now - USE_NOTED_EVERY)
        keep(key)
    return key


def _secret(authorization: str | None) -> str:
    """The key in the header, if it has the form of one."""
    if not authorization:
        raise InvalidApiKey(f"No API key was sent. {_SEND}. {_MAKE}")
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise InvalidApiKey(f"The Authorization header holds no bearer key. {_SEND}.")
    if not secret.startswith(tokens.KEY_PREFIX):
        raise InvalidApiKey(
            f"Keys of this service begin with {tokens.KEY_PREFIX!r}, and yours does not: "
            f"is it another service's, or in quotes? {_SEND}."
        )
    return secret
