"""For how long an offering is left alone after Azure had no room for it. Pure.

What one job learns all of them know: they do not ask for as many machines there, or more,
meanwhile. Each further refusal in a row doubles the time, up to a cap, and the first attempt that
gets machines ends it. When the time is over one job asks, and the others wait for what it is told.
Those that had asked before anybody was refused tell nothing new.

Where eight machines were refused two may be had. So who asks for fewer need not wait, but one of
them asks and the others wait for what it is told. Its refusal lengthens nothing: the shortage is
known to hold for fewer from then on, until the time is over. Else a gang that is refused for ever,
and is the first to ask each time, keeps all others from machines that there are.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from service.domain.cloud.fleet import Offering

FIRST = timedelta(minutes=1)
LONGEST = timedelta(minutes=16)
PROBE = timedelta(minutes=5)  # that one job has to find out
LOOK_AGAIN = timedelta(minutes=1)  # who waits: others may be given machines before the time is over


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """One offering of which ``nodes`` machines or more are not asked for before ``ends_at``."""

    offering: Offering
    since: datetime
    ends_at: datetime
    in_a_row: int  # refusals, of whatever size
    nodes: int  # the fewest that were refused, or are asked for, since the time began
    reason: str

    def lasts(self, now: datetime) -> bool:
        """True while the time is not over."""
        return now < self.ends_at

    def holds(self, now: datetime, nodes: int) -> bool:
        """True while nobody is to ask for so many machines."""
        return self.lasts(now) and nodes >= self.nodes

    def probed(self, now: datetime, nodes: int) -> Self:
        """The same while one job asks for so many.

        It finds out whether the shortage is over, or for fewer than it holds for whether it does
        for them too: then those for whom it holds wait no longer than they did.
        """
        ends_at = self.ends_at if self.lasts(now) else now + PROBE
        return replace(self, ends_at=ends_at, nodes=nodes)

    def is_end_of(self, asked: datetime) -> bool:
        """Whether who ``asked`` then is the one that finds out: the time that it has tells it.

        Times are kept to the microsecond. One who asked for fewer in the very one that lies so far
        before the end is taken for it, which is one doubling too many.
        """
        return self.since < asked == self.ends_at - PROBE


def refused(
    before: Shortage | None,
    offering: Offering,
    nodes: int,
    reason: str,
    asked: datetime,
    now: datetime,
) -> Shortage:
    """What is known after one more refusal, of who ``asked`` then for so many machines.

    ``before``: what was known until now. While its time lasts, only the one that asked to find out
    its end begins another. Who asked before the first refusal, or for fewer, tells how few are not
    to be had; as does who asked for fewer meanwhile and is not answered yet.
    """
    if before is not None and before.lasts(now):
        nodes = min(nodes, before.nodes)
        if not before.is_end_of(asked):
            return replace(before, nodes=nodes)
    many = before.in_a_row + 1 if before else 1
    return Shortage(
        offering=offering,
        since=before.since if before else now,
        ends_at=now + pause(many),
        in_a_row=many,
        nodes=nodes,
        reason=reason,
    )


def pause(in_a_row: int) -> timedelta:
    """How long to leave it alone after so many refusals in a row.

    >>> [int(pause(n).total_seconds()) for n in (1, 2, 3, 9)]
    [60, 120, 240, 960]
    """
    doublings = min(in_a_row - 1, 10)
    return min(FIRST * (1 << doublings), LONGEST)
