"""Read and write rows of uploaded files; the bytes are in Blob under the file's id."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    RowMapping,
    Text,
    bindparam,
    exists,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Format
from service.db.schema.file_tables import files, uploads
from service.db.schema.tables import jobs
from service.domain.states import JOB_TERMINAL

CONTAINER = "files"
_BATCH_SIZE = 10_000  # ids in one query


@dataclass(frozen=True, kw_only=True)
class File:
    """Row of a file."""

    id: str
    project_id: str
    filename: str
    purpose: str
    bytes: int
    sha256: str
    examples: int
    characters: int
    mean_tokens: int
    created_at: datetime
    warnings: list[dict[str, Any]] = field(default_factory=list)  # line, code, message
    warning_counts: dict[str, int] = field(default_factory=dict)
    longest: list[tuple[int, int]] = field(default_factory=list)  # line, tokens
    format: Format = Format.CHAT
    members: dict[str, int] = field(default_factory=dict)  # of prompts, see DatasetSummary
    answers: int = 0  # of rankings: the most that a row has
    labels: list[str] = field(default_factory=list)  # of labelled texts, sorted
    expires_at: datetime | None = None  # a sweep deletes it then, unless a job reads it

    @property
    def tokens(self) -> int:
        """Return an estimate of the tokens in the whole file."""
        return self.mean_tokens * self.examples


_COLUMNS = [files.c[name] for name in File.__dataclass_fields__]
_LONG_COLUMNS = ("warnings", "longest", "members", "labels")
_LIST_COLUMNS = [column for column in _COLUMNS if column.name not in _LONG_COLUMNS]


def _visible(project_id: str | BindParameter[str]) -> tuple[ColumnElement[bool], ...]:
    return (files.c.project_id == project_id, files.c.deleted_at.is_(None))


_LOCK_FILES = (
    select(files.c.id)
    .where(
        files.c.id.in_(bindparam("ids", expanding=True)),
        *_visible(bindparam("project_id", type_=Text)),
    )
    .order_by(files.c.id)
    .with_for_update(read=True)
)


async def add(conn: AsyncConnection, file: File) -> None:
    """Write the row of a file whose bytes are in Blob already."""
    await conn.execute(insert(files).values(vars(file)))


async def lock_for_use(conn: AsyncConnection, project_id: str, ids: Iterable[str]) -> set[str]:
    """Protect files from deletion until the transaction ends; return the ids that exist."""
    rows = await conn.execute(_LOCK_FILES, {"project_id": project_id, "ids": list(ids)})
    return set(rows.scalars())


async def find(conn: AsyncConnection, project_id: str, file_id: str) -> File | None:
    """Return the file; None if it is unknown, deleted or another project's."""
    query = select(*_COLUMNS).where(files.c.id == file_id, *_visible(project_id))
    row = (await conn.execute(query)).mappings().one_or_none()
    return _file(row) if row else None


async def lock(conn: AsyncConnection, project_id: str, file_id: str) -> File | None:
    """Return the file as ``find`` does, locked until the transaction ends.

    Meanwhile no new job can refer to it, and no other transaction deletes it.
    """
    query = select(*_COLUMNS).where(files.c.id == file_id, *_visible(project_id))
    row = (await conn.execute(query.with_for_update())).mappings().one_or_none()
    return _file(row) if row else None


async def page(
    conn: AsyncConnection,
    project_id: str,
    *,
    purpose: str | None,
    after: str | None,
    limit: int,
    ascending: bool,
) -> list[File]:
    """Return files in order of their ids, which is the order of upload, beyond ``after``.

    Their warnings, longest rows, members and labels are left out: a page may hold 10,000 files.
    """
    query = select(*_LIST_COLUMNS).where(*_visible(project_id))
    if purpose:
        query = query.where(files.c.purpose == purpose)
    if after:
        query = query.where(files.c.id > after if ascending else files.c.id < after)
    order = files.c.id.asc() if ascending else files.c.id.desc()
    rows = await conn.execute(query.order_by(order).limit(limit))
    return [_file(r) for r in rows.mappings()]


async def in_use(conn: AsyncConnection, file_id: str) -> bool:
    """Return whether a job reads the file that is neither over nor being cancelled."""
    reads = or_(jobs.c.training_file == file_id, jobs.c.validation_file == file_id)
    goes_on = (jobs.c.state.not_in(JOB_TERMINAL), jobs.c.cancel_requested_at.is_(None))
    query = select(exists().where(reads, *goes_on))
    return bool((await conn.execute(query)).scalar_one())


async def expired(conn: AsyncConnection, now: datetime) -> list[tuple[str, str]]:
    """Return project and id of every expired file, in the order of file ids."""
    query = select(files.c.project_id, files.c.id).where(files.c.expires_at <= now)
    query = query.where(files.c.expires_at.is_not(None), files.c.deleted_at.is_(None))
    return [(project, file) for project, file in await conn.execute(query.order_by(files.c.id))]


async def mark_deleted(conn: AsyncConnection, file_id: str, now: datetime) -> None:
    """Mark the file as deleted; its row stays, since jobs refer to it."""
    await conn.execute(update(files).where(files.c.id == file_id).values(deleted_at=now))


async def was_deleted(conn: AsyncConnection, project_id: str, file_id: str) -> bool:
    """Return whether the project had the file and has deleted it."""
    conditions = (files.c.id == file_id, files.c.project_id == project_id)
    query = select(exists().where(*conditions, files.c.deleted_at.is_not(None)))
    return bool((await conn.execute(query)).scalar_one())


async def dead_and_unknown(
    conn: AsyncConnection, ids: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return which of ``ids`` are abandoned or deleted, and which have no row at all.

    Uploads are read first: one that becomes a file in between is seen twice, not missed.
    """
    is_ended: dict[str, bool] = {}
    for id_, ended_at in ((uploads.c.id, uploads.c.given_up_at), (files.c.id, files.c.deleted_at)):
        for start in range(0, len(ids), _BATCH_SIZE):
            in_batch = id_.in_(ids[start : start + _BATCH_SIZE])
            rows = await conn.execute(select(id_, ended_at.is_not(None)).where(in_batch))
            is_ended.update((i, ended) for i, ended in rows)
    return [i for i in ids if is_ended.get(i)], [i for i in ids if i not in is_ended]


def _file(row: RowMapping) -> File:
    return replace(File(**row), format=Format(row["format"]))
