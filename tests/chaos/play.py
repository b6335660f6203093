"""What a play is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.domain.states import JobState

if TYPE_CHECKING:
    from tests.chaos.life import Life

Turn = Callable[["Life"], Awaitable[None]]


@dataclass(frozen=True)
class Play:
    """One life: what user, machines and Azure do in each round, and how the job ends.

    ``beside``: what of tests/chaos/beside.py the replicas run as well. ``until``: words that the
    play must have said before the life is over, for what happens after the job's end. ``jobs``: how
    many live it in step, so that what they do at a time shares the transactions of crowds.
    """

    turn: Turn
    end: JobState = JobState.SUCCEEDED
    asks: Callable[[Life], dict[str, Any]] = lambda _: {}  # members of the job's request
    beside: tuple[str, ...] = ()
    rate_limited: bool = False  # Azure is asked through the shared list, limits and circuits
    boots: bool = True  # else the machines say why they cannot
    chatty: bool = False  # machines that wait say so: the play takes longer than a silence
    until: frozenset[str] = frozenset()
    jobs: int = 1
