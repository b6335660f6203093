"""Read and write projects and their API keys; only the hash of a key is stored."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Scope
from service.db.core import notify
from service.db.schema.tables import api_keys, jobs, projects
from service.domain.ids import new_id

TOPIC = "keys"  # notified when a key is revoked


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Caller of a request: its key, and the project to act in."""

    api_key_id: str
    project_id: str
    scope: Scope = Scope.READ
    expires_at: datetime | None = None  # of the key
    operates: bool = False  # an operator acts in a project that is not the key's own


@dataclass(frozen=True, kw_only=True)
class Project:
    """Row of a project, which owns jobs, files and keys."""

    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Key:
    """Row of an API key, without the hash."""

    id: str
    project_id: str
    name: str
    hint: str  # the key's last four characters
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    scope: Scope
    expires_at: datetime | None
    created_by: str | None  # id of the key that made it; None: the service's own command

    def has_expired(self, now: datetime) -> bool:
        """Return whether the key has expired."""
        return self.expires_at is not None and self.expires_at <= now


_OF_PROJECTS = [projects.c[name] for name in Project.__dataclass_fields__]
_COLUMNS = [api_keys.c[name] for name in Key.__dataclass_fields__]


async def project(conn: AsyncConnection, name: str, now: datetime) -> str:
    """Return the id of the project with this name; create it if it is missing."""
    row = {"id": new_id("proj", now), "name": name, "created_at": now}
    await conn.execute(upsert(projects).values(row).on_conflict_do_nothing())
    query = select(projects.c.id).where(projects.c.name == name)
    return str((await conn.execute(query)).scalar_one())


async def find_project(conn: AsyncConnection, name: str) -> str | None:
    """Return the id of the project with this name; None if there is none."""
    query = select(projects.c.id).where(projects.c.name == name)
    return (await conn.execute(query)).scalar_one_or_none()


async def projects_named(conn: AsyncConnection, *names: str) -> list[Project]:
    """Return the projects whose id or name is among ``names``."""
    condition = or_(projects.c.id.in_(names), projects.c.name.in_(names))
    rows = await conn.execute(select(*_OF_PROJECTS).where(condition))
    return [Project(**r) for r in rows.mappings()]


async def newest_projects(
    conn: AsyncConnection, *, after: str | None, limit: int, job_id: str | None = None
) -> list[Project] | None:
    """Return projects newest first, beyond ``after``; None if that is no project.

    ``job_id``: only the project that has this job.
    """
    query = select(*_OF_PROJECTS)
    if after is not None:
        if all(project.id != after for project in await projects_named(conn, after)):
            return None
        query = query.where(projects.c.id < after)
    if job_id is not None:
        query = query.where(projects.c.id.in_(select(jobs.c.project_id).where(jobs.c.id == job_id)))
    rows = await conn.execute(query.order_by(projects.c.id.desc()).limit(limit))
    return [Project(**r) for r in rows.mappings()]


async def add(conn: AsyncConnection, key: Key, digest: bytes) -> None:
    """Write a new key with its hash."""
    await conn.execute(insert(api_keys).values(**vars(key), sha256=digest))


async def find(conn: AsyncConnection, digest: bytes) -> Key | None:
    """Return the key with this hash, even if revoked; None if there is none."""
    result = await conn.execute(select(*_COLUMNS).where(api_keys.c.sha256 == digest))
    row = result.mappings().one_or_none()
    return _key(row) if row else None


async def get(conn: AsyncConnection, project_id: str, key_id: str) -> Key | None:
    """Return the project's key with this id, even if revoked; None if there is none."""
    conditions = (api_keys.c.id == key_id, api_keys.c.project_id == project_id)
    row = (await conn.execute(select(*_COLUMNS).where(*conditions))).mappings().one_or_none()
    return _key(row) if row else None


async def newest(
    conn: AsyncConnection, project_id: str, *, after: str | None, limit: int | None
) -> list[Key]:
    """Return keys that are not revoked, newest first, beyond ``after``."""
    query = select(*_COLUMNS).where(
        api_keys.c.project_id == project_id, api_keys.c.revoked_at.is_(None)
    )
    if after:
        query = query.where(api_keys.c.id < after)
    rows = await conn.execute(query.order_by(api_keys.c.id.desc()).limit(limit))
    return [_key(r) for r in rows.mappings()]


async def revoke(conn: AsyncConnection, key_id: str, now: datetime) -> None:
    """Revoke the key; a repeated call keeps the time of the first revocation."""
    conditions = (api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    await conn.execute(update(api_keys).where(*conditions).values(revoked_at=now))
    await notify.notify(conn, TOPIC)


async def revoke_expired(conn: AsyncConnection, project_id: str, name: str, now: datetime) -> None:
    """Revoke expired keys of the project with this name, so that they do not count."""
    c = api_keys.c
    conditions = (
        c.project_id == project_id,
        c.name == name,
        c.revoked_at.is_(None),
        c.expires_at <= now,
    )
    await conn.execute(update(api_keys).where(*conditions).values(revoked_at=now))


async def count(conn: AsyncConnection, project_id: str) -> int:
    """Return how many keys of the project are not revoked."""
    live = (api_keys.c.project_id == project_id, api_keys.c.revoked_at.is_(None))
    query = select(func.count()).select_from(api_keys).where(*live)
    return int((await conn.execute(query)).scalar_one())


async def record_use(conn: AsyncConnection, key_id: str, now: datetime, before: datetime) -> None:
    """Record that the key is used, unless a use since ``before`` is recorded."""
    used = api_keys.c.last_used_at
    conditions = (api_keys.c.id == key_id, or_(used.is_(None), used < before))
    await conn.execute(update(api_keys).where(*conditions).values(last_used_at=now))


def _key(row: RowMapping) -> Key:
    return Key(**{**row, "scope": Scope(row["scope"])})
