"""Projects and their API keys; only the hash of a key is kept."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import api_keys, projects
from service.domain.ids import new_id


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who sent a request."""

    api_key_id: str
    project_id: str


async def project(conn: AsyncConnection, name: str, now: datetime) -> str:
    """Id of the project of that name, made if need be."""
    row = {"id": new_id("proj", now), "name": name, "created_at": now}
    await conn.execute(upsert(projects).values(row).on_conflict_do_nothing())
    query = select(projects.c.id).where(projects.c.name == name)
    return str((await conn.execute(query)).scalar_one())


async def add(
    conn: AsyncConnection, project_id: str, name: str, digest: bytes, hint: str, now: datetime
) -> str:
    """Keep a new key's hash; return the key's id."""
    key_id = new_id("key", now)
    row = {"project_id": project_id, "name": name, "sha256": digest, "hint": hint}
    await conn.execute(insert(api_keys).values(id=key_id, created_at=now, **row))
    return key_id


async def find(conn: AsyncConnection, digest: bytes) -> Caller | None:
    """The caller behind a key, unless it is unknown or revoked."""
    query = select(api_keys.c.id, api_keys.c.project_id).where(
        api_keys.c.sha256 == digest, api_keys.c.revoked_at.is_(None)
    )
    row = (await conn.execute(query)).one_or_none()
    return Caller(api_key_id=row.id, project_id=row.project_id) if row else None
