"""What exists in the cloud against what the database thinks. Pure.

Of each scale set it says who has it, or that nobody does, and what it costs per hour: by its
attempt's row, else by the price list of now. What else carries our tag is nobody's: Rekindle makes
scale sets alone, and Azure takes their parts with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType

from contract.choices import Engine
from service.domain.cloud.fleet import (
    Offering,
    Price,
    Resource,
    ScaleSet,
    ScaleSetPhase,
    scale_set_name,
)
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState, CapacityType


class Standing(StrEnum):
    """How a scale set stands to the database."""

    USED = "used"  # a live attempt has it
    GOING = "going"  # its attempt is over, and it is being deleted
    LINGERING = "lingering"  # the same for far too long
    UNKNOWN = "unknown"  # no attempt that is not ended has it
    MISSING = "missing"  # an attempt thinks that it is there, and it is not
    STRAY = "stray"  # no scale set: a disk, a network interface, whatever carries our tag


LEAKS = frozenset({Standing.LINGERING, Standing.UNKNOWN, Standing.STRAY})
SCALE_SET = "Microsoft.Compute/virtualMachineScaleSets"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """An attempt as far as it matters here."""

    attempt_id: str
    job_id: str
    state: AttemptState
    since: datetime
    region: str
    vm_size: str
    instance_count: int
    hourly: Decimal  # of one machine
    engine: Engine = Engine.SCALE_SET


@dataclass(frozen=True, kw_only=True)
class Found:
    """One scale set, there or missing, or something else with our tag."""

    name: str  # of something else after its whole type, as "Microsoft.Compute/disks/x": unique
    kind: str = SCALE_SET  # as Azure names its type
    standing: Standing
    region: str
    vm_size: str
    attempt_id: str  # of a set that nobody has: as its tag says; empty without one
    job_id: str
    state: str  # of the attempt; empty where the database knows none
    phase: str  # of the set; empty where it is missing
    machines: int
    since: datetime | None  # the cloud took the order; of a missing one: the attempt's state
    hourly: Decimal | None  # of all its machines; None: nobody knows its price
    assumed: CapacityType | None = None  # that price's, where nobody knows how it was bought

    @property
    def leaks(self) -> bool:
        """Whether it costs money for nothing, and nothing that goes on now ends that."""
        return self.standing in LEAKS and self.phase != ScaleSetPhase.DELETING


def audit(
    there: Sequence[ScaleSet],
    owners: Mapping[str, Owner],
    now: datetime,
    *,
    prices: Mapping[Offering, Price] = MappingProxyType({}),
    strays: Sequence[Resource] = (),
    attempt_tag: str,
    job_tag: str,
) -> list[Found]:
    """Every scale set that is there or should be, and ``strays``, by name.

    ``owners``: by attempt id; all that are not ended, and of the ended ones those whose sets are
    there. The cloud was listed before the rows were read, so no new set is taken for a leak.
    ``prices``: of what is ``unpriced``, as far as they are known.
    """
    by_name = _by_name(owners)
    found = []
    for s in there:
        if owner := by_name.get(s.name):
            found.append(_owned(s, owner, now))
        else:
            tags = s.tags.get(attempt_tag, ""), s.tags.get(job_tag, "")
            found.append(_nobodys(s, prices, *tags))
    names = {s.name for s in there}
    found += [
        _missing(name, owner)
        for name, owner in by_name.items()
        if name not in names and owner.state in ATTEMPT_WITH_NODES
    ]
    found += [_stray(s, s.tags.get(attempt_tag, ""), s.tags.get(job_tag, "")) for s in strays]
    return sorted(found, key=lambda f: f.name)


def unpriced(there: Sequence[ScaleSet], owners: Mapping[str, Owner]) -> list[Offering]:
    """What must be asked for at a price list: of sets that no row knows a price of."""
    by_name = _by_name(owners)
    places = {_offering(s) for s in there if s.name not in by_name}
    return sorted(place for place in places if place.region and place.vm_size)


def per_hour(found: Sequence[Found]) -> dict[Standing, Decimal]:
    """What each group costs; what is missing costs nothing, what has no price counts as nothing."""
    sums = dict.fromkeys(Standing, Decimal(0))
    for one in found:
        if one.standing is not Standing.MISSING:
            sums[one.standing] += one.hourly or Decimal(0)
    return sums


def _by_name(owners: Mapping[str, Owner]) -> dict[str, Owner]:
    return {scale_set_name(o.attempt_id): o for o in owners.values()}


def _offering(found: ScaleSet) -> Offering:
    """As Spot where the cloud does not tell: most of ours is."""
    return Offering(
        region=found.region,
        vm_size=found.vm_size,
        capacity_type=found.capacity_type or CapacityType.SPOT,
        engine=found.engine,
    )


def _owned(found: ScaleSet, owner: Owner, now: datetime) -> Found:
    machines = _machines(found)
    return Found(
        name=found.name,
        standing=_standing(owner, now),
        region=found.region or owner.region,
        vm_size=found.vm_size or owner.vm_size,
        attempt_id=owner.attempt_id,
        job_id=owner.job_id,
        state=owner.state,
        phase=found.phase,
        machines=machines,
        since=found.created_at,
        hourly=owner.hourly * machines,
    )


def _nobodys(
    found: ScaleSet, prices: Mapping[Offering, Price], attempt_id: str, job_id: str
) -> Found:
    machines, offering = _machines(found), _offering(found)
    price = prices.get(offering)
    guessed = price is not None and found.capacity_type is None
    return Found(
        name=found.name,
        standing=Standing.UNKNOWN,
        region=found.region,
        vm_size=found.vm_size,
        attempt_id=attempt_id,
        job_id=job_id,
        state="",
        phase=found.phase,
        machines=machines,
        since=found.created_at,
        hourly=price.hourly * machines if price else None,
        assumed=offering.capacity_type if guessed else None,
    )


def _machines(found: ScaleSet) -> int:
    return found.capacity if found.capacity is not None else len(found.instances)


def _standing(owner: Owner, now: datetime) -> Standing:
    if owner.state in (AttemptState.ENDED, AttemptState.PENDING):
        return Standing.UNKNOWN
    if owner.state is not AttemptState.TERMINATING:
        return Standing.USED
    return Standing.LINGERING if now - owner.since > TOO_LONG_TO_DELETE else Standing.GOING


def _stray(found: Resource, attempt_id: str, job_id: str) -> Found:
    return Found(
        name=f"{found.kind}/{found.name}",  # a last word alone is that of several providers
        kind=found.kind,
        standing=Standing.STRAY,
        region=found.region,
        vm_size="",
        attempt_id=attempt_id,
        job_id=job_id,
        state="",
        phase="",
        machines=0,
        since=None,
        hourly=None,
    )


def _missing(name: str, owner: Owner) -> Found:
    return Found(
        name=name,
        standing=Standing.MISSING,
        region=owner.region,
        vm_size=owner.vm_size,
        attempt_id=owner.attempt_id,
        job_id=owner.job_id,
        state=owner.state,
        phase="",
        machines=owner.instance_count,
        since=owner.since,
        hourly=None,
    )
