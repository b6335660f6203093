"""Back off from an offering after Azure had no capacity for it, shared by all jobs. Pure.

During the backoff no job requests the refused number of machines there, or more. Each further
refusal in a row doubles the backoff, up to a cap; the first attempt that gets machines resets it.
When it ends, one job probes and the others wait for the answer. Answers to requests that were sent
before the first refusal change nothing.

Azure may grant two machines where it refused eight. So smaller requests do not wait for the end of
the backoff: one of them probes, and the others wait for its answer. A refusal of this probe does
not lengthen the backoff. It extends the shortage to the smaller number of machines, until the
backoff ends. Otherwise a large gang that probes first and is always refused would keep all others
from machines that are available.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from service.domain.cloud.fleet import Offering

FIRST_BACKOFF = timedelta(minutes=1)
LONGEST_BACKOFF = timedelta(minutes=16)
PROBE_TIMEOUT = timedelta(minutes=5)  # for the one job that probes; then another may
# A waiting job looks again this often: another job's success ends a backoff early.
RECHECK_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """An offering of which ``nodes`` machines or more are not requested before ``ends_at``."""

    offering: Offering
    since: datetime
    ends_at: datetime
    in_a_row: int  # refusals, of any number of machines; 0: the quota of cores is used up
    nodes: int  # smallest request that was refused, or probes, since the backoff began
    reason: str

    def is_active(self, now: datetime) -> bool:
        """Return whether the backoff has not ended."""
        return now < self.ends_at

    def covers(self, now: datetime, nodes: int) -> bool:
        """Return whether a request for ``nodes`` machines must wait."""
        return self.is_active(now) and nodes >= self.nodes

    def with_probe(self, now: datetime, nodes: int) -> Self:
        """Return the shortage while one job probes with a request for ``nodes`` machines.

        The probe finds out whether the shortage is over. If it asks for fewer machines, it finds
        out whether the shortage covers those too; jobs that were covered before wait no longer than
        they did.
        """
        ends_at = self.ends_at if self.is_active(now) else now + PROBE_TIMEOUT
        return replace(self, ends_at=ends_at, nodes=nodes)

    def is_probe(self, requested_at: datetime) -> bool:
        """Return whether the request sent then is the probe at the end of the backoff.

        The probe is recognised by its time limit. Times are kept to the microsecond: a smaller
        request sent in exactly that microsecond is mistaken for it, which costs one doubling too
        many.
        """
        return self.since < requested_at == self.ends_at - PROBE_TIMEOUT


def record_refusal(
    before: Shortage | None,
    offering: Offering,
    nodes: int,
    reason: str,
    requested_at: datetime,
    now: datetime,
) -> Shortage:
    """Return the shortage after one more refusal of a request that was sent at ``requested_at``.

    ``before`` is the shortage so far. While its backoff is active, only the refusal of its probe
    starts another one. Any other refusal only lowers the number of machines that it covers.
    """
    if before is not None and before.is_active(now):
        nodes = min(nodes, before.nodes)
        if not before.is_probe(requested_at):
            return replace(before, nodes=nodes)
    many = before.in_a_row + 1 if before else 1
    return Shortage(
        offering=offering,
        since=before.since if before else now,
        ends_at=now + backoff_after(many),
        in_a_row=many,
        nodes=nodes,
        reason=reason,
    )


def backoff_after(in_a_row: int) -> timedelta:
    """Return the backoff after this many refusals in a row.

    >>> [int(backoff_after(n).total_seconds()) for n in (1, 2, 3, 9)]
    [60, 120, 240, 960]
    """
    doublings = min(in_a_row - 1, 10)
    return min(FIRST_BACKOFF * (1 << doublings), LONGEST_BACKOFF)
