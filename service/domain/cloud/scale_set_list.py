"""What one list of all scale sets tells about each: enough, while nothing has changed. Pure.

A list has phases and capacities and no instances. Azure lowers the capacity when it takes a
machine, so a set whose phase and capacity are as before has the machines that it had.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

from service.domain.cloud.fleet import Instance, ScaleSet, ScaleSetPhase
from service.domain.cloud.rate_limit import BUCKETS, CloudCall, RequestKind
from service.domain.states import ATTEMPT_WITH_NODES, TIME_LIMITS, AttemptState

# A machine that was taken and lingers stopped lowers nothing: its set is looked at this often all
# the same. Its silence is noticed earlier.
LOOK_EVERY = timedelta(minutes=10)
LOOKS_A_MINUTE = (
    BUCKETS[RequestKind.LIST].per_minute / 4
)  # at most, of all sets: the rest is for what is new
STALE_ROUNDS = 3  # a list that is so many rounds old tells nothing any more


@dataclass(frozen=True)
class Listed:
    """One set as it is listed."""

    phase: ScaleSetPhase
    capacity: int | None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Every set that carries our tag, at one time."""

    listed_at: datetime  # when it was asked for
    sets: Mapping[str, Listed]

    def is_fresh(self, now: datetime, every: timedelta) -> bool:
        """Whether it may be believed, if one is asked for every so often.

        One from further ahead than a round is of a replica whose clock is wrong.
        """
        return -every <= now - self.listed_at <= STALE_ROUNDS * every


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an attempt's row remembers of its scale set."""

    name: str
    state: AttemptState
    instance_count: int
    vm_ids: tuple[str, ...]  # that ran when it was last looked at ...
    seen_at: datetime | None  # ... at this time
    refilled_at: datetime | None  # when machines were asked for in place of lost ones
    deferred_call: CloudCall | None = None


def has_changed(known: Known, listed: Listed | None) -> bool:
    """Return whether the list says something of a set that its row does not know.

    Of a set with nodes; or of one whose creation was accepted although it is to be repeated.
    """
    if known.deferred_call is CloudCall.CREATE:
        return listed is not None
    if known.state not in ATTEMPT_WITH_NODES:
        return False
    return listed is None or listed != Listed(ScaleSetPhase.READY, len(known.vm_ids))


def as_listed(known: Known, listing: Listing, now: datetime) -> ScaleSet | None:
    """The scale set, where a fresh list says enough of it; None: it must be looked at itself.

    That it is gone is never believed of a list.
    """
    listed = listing.sets.get(known.name)
    if listed is None:
        return None
    if known.state is AttemptState.TERMINATING and listed.phase is ScaleSetPhase.DELETING:
        return ScaleSet(name=known.name, phase=ScaleSetPhase.DELETING)
    whole = len(known.vm_ids) == known.instance_count and not _grows(known, now)
    if not whole or has_changed(known, listed) or known.state not in ATTEMPT_WITH_NODES:
        return None
    if known.seen_at is None or now - known.seen_at > look_every(known.name, len(listing.sets)):
        return None
    machines = tuple(Instance(instance_id="", vm_id=v, name="") for v in known.vm_ids)
    return ScaleSet(name=known.name, phase=ScaleSetPhase.READY, instances=machines)


def look_every(name: str, sets: int) -> timedelta:
    """Between two looks at this one of so many sets: a quarter more or less than on the mean.

    Sets that began together are not looked at together: each has its own share, by its name.
    """
    mean = max(LOOK_EVERY, timedelta(minutes=sets / LOOKS_A_MINUTE))
    return mean * (0.75 + 0.5 * crc32(name.encode()) / 2**32)


def _grows(known: Known, now: datetime) -> bool:
    """True until a machine in place of a lost one has joined, or has been found to be useless."""
    joins_within, _ = TIME_LIMITS[AttemptState.STARTING]
    return known.refilled_at is not None and now - known.refilled_at <= 2 * joins_within
