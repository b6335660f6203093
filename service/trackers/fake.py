"""A tracker in memory, for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from service.domain.states import JobState
from service.trackers.tracker import Point, TrackerError, TrackerRun


@dataclass
class FakeTracker:
    """A tracker that stores each new point; it raises ``fault`` while that is set."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    outcomes: dict[str, JobState] = field(default_factory=dict)
    fault: TrackerError | None = None
    calls: int = 0
    interval: timedelta = timedelta(seconds=15)
    block_steps: int = 1

    async def send(self, run: TrackerRun, points: Sequence[Point]) -> str:
        """See the protocol."""
        self.calls += 1
        if self.fault:
            raise self.fault
        recorded = self.points.setdefault(run.job_id, [])
        last = recorded[-1].step if recorded else 0
        recorded += [point for point in points if point.step > last]
        if run.outcome:
            self.outcomes[run.job_id] = run.outcome
        return f"https://tracker.example/runs/{run.job_id}"

    async def close(self) -> None:
        """Do nothing: there are no connections."""
