"""The seam to experiment trackers: a job's run, and the steps that are added to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from service.domain.states import JobState


class TrackerError(Exception):
    """The tracker refused or did not answer. The text holds no secret; a retry is safe."""


@dataclass(frozen=True, kw_only=True)
class TrackerRun:
    """A job's run in one tracker."""

    job_id: str
    started_at: float  # unix seconds
    options: Mapping[str, Any]  # the request's, of this type
    outcome: JobState | None = None  # None: the job is not over
    url: str | None = None  # as an earlier batch returned it


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one step, by name; ``at`` in unix seconds."""

    step: int
    at: float
    values: Mapping[str, float]


class Tracker(Protocol):
    """One tracker of the deployment."""

    @property
    def interval(self) -> timedelta:
        """Return the pause between two batches of a run."""
        ...

    @property
    def block_steps(self) -> int:
        """Return the steps per block; a batch begins with the first step of a block."""
        ...

    async def send(self, run: TrackerRun, points: Sequence[Point]) -> str:
        """Add the steps that the job's run lacks, and return its address.

        Creates the run if there is none, and ends it if the job has ended. Steps that the run has
        are not added again. Raises TrackerError.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
