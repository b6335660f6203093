"""Live lists of a project's jobs, for any number of open pages.

One reader per process reads the jobs that were notified, at most once a second, and sends the same
bytes to every stream of their project: another page costs one write a second. A notice may be lost
with its connection, so the reader also reads recently changed jobs every few seconds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from service.api.deps import Parts
from service.api.http import streams
from service.api.http.streams import EventStream
from service.api.jobs import job_views
from service.db.core import notify
from service.db.jobs import job_lists, job_versions
from service.db.jobs.job_lists import JobFilter, Sort

log = logging.getLogger(__name__)
_RECHECK_SECONDS: Final = 5.0
_MAX_JOBS: Final = 1000  # jobs of a project that are read at once
_MAX_LAG: Final = 60  # batches that a slow client may lag; then its stream ends, and it resumes
# Replicas' clocks differ, and a change may be committed after a later one.
_CLOCK_MARGIN: Final = timedelta(seconds=10)
_Queue = asyncio.Queue[bytes | None]  # None: the stream ends


@dataclass
class _Project:
    """The streams of one project."""

    changed_at: datetime  # of the newest change that was seen
    queues: set[_Queue] = field(default_factory=set)
    sent_versions: dict[str, int] = field(default_factory=dict)  # version by job


class LiveLists:
    """The live lists of one API process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._projects: dict[str, _Project] = {}
        self._reader: asyncio.Task[None] | None = None

    async def stream(self, project_id: str, after: datetime | None) -> EventStream:
        """Yield a `ready` event, the jobs changed since ``after``, and each change from then on."""
        async with self._subscribe(project_id) as queue:
            now = self._parts.now()
            missed: dict[str, int] = {}
            batch = await self._read_missed(project_id, after, missed)
            resumed = after is not None and len(missed) < _MAX_JOBS
            ready = {"as_of": int(now.timestamp()), "resumed": resumed}
            yield streams.event("ready", _event_id(now), ready)
            if batch:
                yield batch
            while (frame := await queue.get()) is not None:
                yield frame

    async def _read_missed(
        self, project_id: str, after: datetime | None, version_of: dict[str, int]
    ) -> bytes:
        if after is None:
            return b""
        where = JobFilter(metadata={}, changed_since=after - _CLOCK_MARGIN)
        return await self._read(project_id, where, version_of)

    @asynccontextmanager
    async def _subscribe(self, project_id: str) -> AsyncIterator[_Queue]:
        queue = _Queue(_MAX_LAG + 1)
        project = self._projects.setdefault(project_id, _Project(self._parts.now()))
        project.queues.add(queue)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._run_reader())
            self._reader.add_done_callback(self._end_streams)
        try:
            yield queue
        finally:
            project.queues.discard(queue)
            if not project.queues and self._projects.get(project_id) is project:
                del self._projects[project_id]

    async def _run_reader(self) -> None:
        parts, kind = self._parts, job_versions.KIND
        with (
            parts.drain.polling(notify.any_of(kind)) as changed,
            parts.listener.collecting(kind) as t,
        ):
            # Ends by itself after the last page: cancelled, it could leave a connection open.
            while self._projects and not parts.drain.has_begun:
                await notify.wait(changed, _RECHECK_SECONDS)
                ids = [job_versions.job_of(topic) for topic in t]
                is_connected = parts.listener.is_connected
                t.clear()
                for project_id in list(self._projects):
                    await self._publish(project_id, ids if is_connected and ids else None)
                await asyncio.sleep(parts.live_interval.total_seconds())

    async def _publish(self, project_id: str, ids: Collection[str] | None) -> None:
        """Send the changes of these jobs; None: of all jobs that changed lately."""
        project = self._projects.get(project_id)
        if project is None:  # its last page was closed meanwhile
            return
        since = project.changed_at - _CLOCK_MARGIN if ids is None else None
        batch = await self._read(
            project_id,
            JobFilter(metadata={}, ids=ids, changed_since=since),
            project.sent_versions,
            project,
        )
        for queue in list(project.queues) if batch else ():
            if queue.qsize() >= _MAX_LAG:
                queue.put_nowait(None)
                project.queues.discard(queue)
            else:
                queue.put_nowait(batch)

    async def _read(
        self,
        project_id: str,
        where: JobFilter,
        version_of: dict[str, int],
        project: _Project | None = None,
    ) -> bytes:
        """Return the events of these jobs, oldest change first, without versions sent before."""
        now, frames = self._parts.now(), []
        read = partial(
            job_lists.page, after=None, limit=_MAX_JOBS, sort=Sort.UPDATED, ascending=True
        )
        async with self._parts.reading.connect() as conn:
            overviews = await read(conn, project_id, now, where=where)
        for overview in overviews:
            job = overview.job
            if version_of.get(job.id, 0) < job.version:
                version_of[job.id] = job.version
                summary = job_views.job_summary(overview, now).model_dump(mode="json")
                frames.append(streams.event("job", _event_id(job.updated_at), summary).encode())
            if project is not None:
                project.changed_at = max(project.changed_at, job.updated_at)
        return b"".join(frames)

    def _end_streams(self, reader: asyncio.Task[None]) -> None:
        """End every stream: the service is shutting down, or the database did not answer."""
        if reader is not self._reader:  # another one has taken its place
            return
        self._reader = None
        if not reader.cancelled() and (cause := reader.exception()):
            log.warning("streams.reader_failed", extra={"cause": repr(cause)})
        for project in self._projects.values():
            for queue in project.queues:
                queue.put_nowait(None)
        self._projects.clear()


def _event_id(at: datetime) -> str:
    """Return the id of an event, after which a stream resumes: microseconds of Unix time."""
    return str(int(at.timestamp() * 1_000_000))


def parse_event_id(name: str | None) -> datetime | None:
    """Return the time in an id of ``_event_id``; None for no id or an unknown one."""
    if name is None or not (name.isascii() and name.isdigit() and len(name) <= len("9" * 16)):
        return None
    return datetime.fromtimestamp(int(name) / 1_000_000, UTC)
