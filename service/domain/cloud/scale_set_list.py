"""Derive the state of scale sets from one list call instead of one call each. Pure.

A list has phases and capacities and no instances. Azure lowers the capacity when it takes a
machine, so a set whose phase and capacity are unchanged still has its machines.
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
OBSERVATION_INTERVAL = timedelta(minutes=10)
# Of all sets together: the rest of the list quota is for new sets.
MAX_OBSERVATIONS_PER_MINUTE = BUCKETS[RequestKind.LIST].per_minute / 4
STALE_ROUNDS = 3  # a list older than this many rounds is ignored


@dataclass(frozen=True)
class ListedScaleSet:
    """One scale set as it is listed."""

    phase: ScaleSetPhase
    capacity: int | None


@dataclass(frozen=True, kw_only=True)
class ScaleSetList:
    """Every scale set that carries our tag, at one time."""

    listed_at: datetime  # when it was asked for
    sets: Mapping[str, ListedScaleSet]

    def is_fresh(self, now: datetime, interval: timedelta) -> bool:
        """Return whether the list is recent enough, given the interval between lists.

        A list from the future was written by a replica whose clock is wrong.
        """
        return -interval <= now - self.listed_at <= STALE_ROUNDS * interval


@dataclass(frozen=True, kw_only=True)
class KnownScaleSet:
    """What an attempt's row records of its scale set."""

    name: str
    state: AttemptState
    instance_count: int
    vm_ids: tuple[str, ...]  # that ran when it was last looked at ...
    seen_at: datetime | None  # ... at this time
    refilled_at: datetime | None  # when machines were asked for in place of lost ones
    deferred_call: CloudCall | None = None


def has_changed(record: KnownScaleSet, listed: ListedScaleSet | None) -> bool:
    """Return whether the list shows what the row does not record.

    For a set with nodes; also for one whose creation was accepted while its repetition is deferred.
    """
    if record.deferred_call is CloudCall.CREATE:
        return listed is not None
    if record.state not in ATTEMPT_WITH_NODES:
        return False
    return listed is None or listed != ListedScaleSet(ScaleSetPhase.READY, len(record.vm_ids))


def scale_set_from_list(
    record: KnownScaleSet, listing: ScaleSetList, now: datetime
) -> ScaleSet | None:
    """Return the scale set if a fresh list is sufficient; None: observe it directly.

    A list is never sufficient to conclude that a scale set is gone.
    """
    listed = listing.sets.get(record.name)
    if listed is None:
        return None
    if record.state is AttemptState.TERMINATING and listed.phase is ScaleSetPhase.DELETING:
        return ScaleSet(name=record.name, phase=ScaleSetPhase.DELETING)
    is_complete = len(record.vm_ids) == record.instance_count and not _is_refilling(record, now)
    if not is_complete or has_changed(record, listed) or record.state not in ATTEMPT_WITH_NODES:
        return None
    if record.seen_at is None or now - record.seen_at > observation_interval(
        record.name, len(listing.sets)
    ):
        return None
    machines = tuple(Instance(instance_id="", vm_id=v, name="") for v in record.vm_ids)
    return ScaleSet(name=record.name, phase=ScaleSetPhase.READY, instances=machines)


def observation_interval(name: str, sets: int) -> timedelta:
    """Return the time between direct observations of one of ``sets`` scale sets.

    It varies by a quarter with the name, so that sets created together are not observed together.
    """
    mean = max(OBSERVATION_INTERVAL, timedelta(minutes=sets / MAX_OBSERVATIONS_PER_MINUTE))
    return mean * (0.75 + 0.5 * crc32(name.encode()) / 2**32)


def _is_refilling(record: KnownScaleSet, now: datetime) -> bool:
    """Return whether a replacement machine may still join."""
    joins_within, _ = TIME_LIMITS[AttemptState.STARTING]
    return record.refilled_at is not None and now - record.refilled_at <= 2 * joins_within
