"""For how long an offering is left alone after Azure had no room for it. Pure.

What one job learns all of them know: they do not ask for it meanwhile. Each further refusal in a
row doubles the time, up to a cap, and the first attempt that gets machines ends it. When the time
is over one job asks, and the others wait for what it is told. Those that had asked before anybody
was refused tell nothing new.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from service.domain.fleet import Offering

FIRST = timedelta(minutes=1)
LONGEST = timedelta(minutes=16)
PROBE = timedelta(minutes=5)  # that one job has to find out
LOOK_AGAIN = timedelta(minutes=1)  # who waits: others may be given machines before the time is over


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """One offering that is not asked for before ``ends_at``."""

    offering: Offering
    since: datetime
    ends_at: datetime
    in_a_row: int  # refusals
    reason: str

    def holds(self, now: datetime) -> bool:
        """True while nobody is to ask."""
        return now < self.ends_at

    def probed(self, now: datetime) -> Self:
        """The same while one job asks."""
        members = vars(self) | {"ends_at": now + PROBE}
        return type(self)(**members)


def refused(
    before: Shortage | None, offering: Offering, reason: str, asked: datetime, now: datetime
) -> Shortage:
    """What is known after one more refusal, of who ``asked`` then.

    ``before``: what was known until now. While it holds it stays as it is for whoever asked before
    the first refusal: they asked at one moment. Who asks later does so to find out.
    """
    if before is not None and before.holds(now) and asked <= before.since:
        return before
    many = before.in_a_row + 1 if before else 1
    return Shortage(
        offering=offering,
        since=before.since if before else now,
        ends_at=now + pause(many),
        in_a_row=many,
        reason=reason,
    )


def pause(in_a_row: int) -> timedelta:
    """How long to leave it alone after so many refusals in a row.

    >>> [int(pause(n).total_seconds()) for n in (1, 2, 3, 9)]
    [60, 120, 240, 960]
    """
    doublings = min(in_a_row - 1, 10)
    return min(FIRST * (1 << doublings), LONGEST)
