"""Sends the metrics of jobs to experiment trackers. No job and no machine waits for it.

Level-triggered: the database says which step a tracker has. The tracker is asked as well, so a
step that was sent before the service was killed is not sent again. Only complete steps are sent:
the newest one waits for its successor, since its validation loss comes after it. A step also waits
for those before it, which a lost node may have left in Blob.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from contract.figures import tagged
from service.db.jobs import events, jobs
from service.db.jobs.jobs import JobRow
from service.db.trackers import tracker_runs
from service.db.trackers.tracker_runs import TrackerRunRow
from service.trackers.tracker import Point, Tracker, TrackerError, TrackerRun

log = logging.getLogger(__name__)
TIMEOUT = timedelta(days=1)  # until a failing tracker is given up
RETRY_DELAY = timedelta(seconds=60)
CLAIM_DURATION = timedelta(minutes=10)
SETTLE_DELAY = timedelta(seconds=60)  # after a job's end, for its last figures to come in
_MAX_RUNS = 20
_MAX_STEPS = 1000  # of one batch
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrackerRuns:
    """Sends due steps to one tracker each round; a tracker that hangs delays no other."""

    engine: AsyncEngine
    kind: str
    tracker: Tracker
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Send due steps; return the jobs whose trackers received some."""
        async with self.engine.begin() as conn:
            claimed = await tracker_runs.claim(
                conn, self.kind, self.now(), CLAIM_DURATION, _MAX_RUNS
            )
        results = await asyncio.gather(*map(self._send_due_steps, claimed))
        return [run.job_id for run, was_sent in zip(claimed, results, strict=True) if was_sent]

    async def _send_due_steps(self, claimed: TrackerRunRow) -> bool:
        tracker = self.tracker
        async with self.engine.connect() as conn:
            job = await jobs.find(conn, claimed.job_id)
            assert job is not None, "runs refer to jobs"
            after = claimed.last_step - claimed.last_step % tracker.block_steps
            trained_s, rows = await tracker_runs.figures(conn, job.id, after, _MAX_STEPS)
        is_settled = job.finished_at is not None and self.now() >= job.finished_at + SETTLE_DELAY
        complete = rows if is_settled else _complete_steps(rows, after)
        points = _points(complete, job.created_at.timestamp() + trained_s)
        has_new_steps = bool(points) and points[-1].step > claimed.last_step
        closed = is_settled and len(rows) < _MAX_STEPS
        if has_new_steps or closed:
            return await self._send(claimed, job, points, closed=closed)
        await self._update_run(claimed, due_at=self.now() + tracker.interval)
        return False

    async def _send(
        self, claimed: TrackerRunRow, job: JobRow, points: Sequence[Point], *, closed: bool
    ) -> bool:
        run = TrackerRun(
            job_id=job.id,
            started_at=job.created_at.timestamp(),
            options=_options(job, claimed.kind),
            outcome=job.state if closed else None,
            url=claimed.url,
        )
        try:
            url = await self.tracker.send(run, points)
        except TrackerError as fault:
            await self._retry_or_give_up(claimed, fault)
            return False
        values: Json = {
            "due_at": self.now() + self.tracker.interval,
            "url": url,
            "failing_since": None,
        }
        last = points[-1].step if points else claimed.last_step
        text = f"{claimed.kind} receives the metrics" + (f": {url}" if url else "")
        event = None if claimed.url is not None else ("tracker.started", text)
        await self._update_run(claimed, event, last_step=last, closed=closed, **values)
        return bool(points)

    async def _retry_or_give_up(self, claimed: TrackerRunRow, fault: TrackerError) -> None:
        now, since = self.now(), claimed.failing_since or self.now()
        facts = {"job": claimed.job_id, "tracker": claimed.kind, "cause": str(fault)}
        log.warning("tracker.failed", extra=facts)
        if now < since + TIMEOUT:
            await self._update_run(claimed, due_at=now + RETRY_DELAY, failing_since=since)
            return
        text = (
            f"Sending metrics to {claimed.kind} has failed for a day, so it receives no more. "
            f"Training is not affected. Error: {fault}"
        )
        await self._update_run(
            claimed, ("tracker.given_up", text), closed=True, failing_since=since
        )

    async def _update_run(
        self,
        claimed: TrackerRunRow,
        event: tuple[str, str] | None = None,
        **values: Any,  # noqa: ANN401 - columns
    ) -> None:
        async with self.engine.begin() as conn:
            if await tracker_runs.settle(conn, claimed, **values) and event:
                code, text = event
                level = "warn" if code == "tracker.given_up" else "info"
                await events.add(conn, claimed.job_id, self.now(), code, text, level=level)


def _options(job: JobRow, kind: str) -> Json:
    of_kind = (i for i in job.request.get("integrations") or [] if i["type"] == kind)
    return next((integration.get(kind) or {} for integration in of_kind), {})


def _complete_steps(rows: Sequence[Json], after: int) -> Sequence[Json]:
    """Return the steps that follow ``after`` without a gap, except the newest one."""
    steps = enumerate(rows, start=after + 1)
    gap = next((step for step, row in steps if row["step"] != step), after + 1 + len(rows))
    return rows[: min(gap - after - 1, max(len(rows) - 1, 0))]


def _points(rows: Sequence[Json], start: float) -> list[Point]:
    """Date each step: the job's creation and the seconds trained since, without stops."""
    points, now = [], start
    for row in rows:
        now += row["seconds"]
        points.append(Point(step=row["step"], at=now, values=tagged(row)))
    return points
