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
    """What user, machines and Azure do in each round, and how the job ends; None: in any way.

    ``beside``: the periodic work of the replicas, by its names in `periodic_work.py`. ``until``:
    words that the play must have said before the life is over, for what happens after the job's
    end. ``jobs``: how many live it in step, so that they share batched transactions.
    """

    turn: Turn
    end: JobState | None = JobState.SUCCEEDED
    asks: Callable[[ScenarioJob], dict[str, Any]] = lambda _: {}  # members of the job's request
    beside: tuple[str, ...] = ()
    rate_limited: bool = False  # Azure is asked through the shared list, limits and circuits
    boots: bool = True  # else the machines say why they cannot
    chatty: bool = False  # machines that wait say so: the play takes longer than a silence
    until: frozenset[str] = frozenset()
    jobs: int = 1
    ghosts: bool = False  # machines are made that no attempt knows of
