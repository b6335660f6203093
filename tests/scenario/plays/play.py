"""A play: what happens to the jobs of a scenario, and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.domain.states import JobState

if TYPE_CHECKING:
    from tests.scenario.job import ScenarioJob

Turn = Callable[["ScenarioJob"], Awaitable[None]]


@dataclass(frozen=True)
class Play:
    """What user, machines and Azure do in each round, and the job's final state; None: any.

    ``periodic_work``: more work of the replicas, by its names in `periodic_work.py`. ``until``:
    what the play must have done before the life ends, for events after the job's end. ``jobs``:
    how many jobs run in step, so that they share batched transactions.
    """

    turn: Turn
    end: JobState | None = JobState.SUCCEEDED
    request: Callable[[ScenarioJob], dict[str, Any]] = lambda _: {}  # members of the job's request
    periodic_work: tuple[str, ...] = ()
    rate_limited: bool = False  # calls of Azure use the shared list, limits and circuits
    boots: bool = True  # else the machines report why they cannot
    chatty: bool = False  # waiting machines send heartbeats: the play exceeds the silence limit
    until: frozenset[str] = frozenset()
    jobs: int = 1
    orphans: bool = False  # it creates machines that no attempt knows of
