"""Compare the cloud's resources with the database. Pure.

For each scale set it states the owner, if any, and the cost per hour: from the attempt's row, else
from the present price list. Any other resource with our tag has no owner: Rekindle creates scale
sets only, and Azure deletes their parts with them.
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
    ScaleSet,
    ScaleSetPhase,
    TaggedResource,
    scale_set_name,
)
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState, CapacityType


class AuditStanding(StrEnum):
    """How a scale set relates to the database."""

    USED = "used"  # a live attempt has it
    GOING = "going"  # its attempt is over, and it is being deleted
    LINGERING = "lingering"  # the same for far too long
    UNKNOWN = "unknown"  # no attempt that is not ended has it
    MISSING = "missing"  # an attempt thinks that it is there, and it is not
    UNTRACKED = "untracked"  # no scale set: a disk, a network interface, whatever carries our tag


LEAKS = frozenset({AuditStanding.LINGERING, AuditStanding.UNKNOWN, AuditStanding.UNTRACKED})
SCALE_SET = "Microsoft.Compute/virtualMachineScaleSets"


@dataclass(frozen=True, kw_only=True)
class ScaleSetOwner:
    """The facts of an attempt that the audit needs."""

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
class AuditedResource:
    """One scale set, present or missing, or another resource with our tag."""

    name: str  # of something else after its whole type, as "Microsoft.Compute/disks/x": unique
    kind: str = SCALE_SET  # as Azure names its type
    standing: AuditStanding
    region: str
    vm_size: str
    attempt_id: str  # without an owner: from its tag; empty without one
    job_id: str
    state: str  # of the attempt; empty where the database knows none
    phase: str  # of the set; empty where it is missing
    machines: int
    since: datetime | None  # the cloud took the order; of a missing one: the attempt's state
    hourly: Decimal | None  # of all its machines; None: unknown
    assumed: CapacityType | None = None  # assumed for the price, where the cloud does not state it

    @property
    def leaks(self) -> bool:
        """Return whether it costs money to no purpose and nothing in progress ends that."""
        return self.standing in LEAKS and self.phase != ScaleSetPhase.DELETING


def audit_resources(
    scale_sets: Sequence[ScaleSet],
    owners: Mapping[str, ScaleSetOwner],
    now: datetime,
    *,
    prices: Mapping[Offering, Price] = MappingProxyType({}),
    untracked: Sequence[TaggedResource] = (),
    attempt_tag: str,
    job_tag: str,
) -> list[AuditedResource]:
    """Return every scale set that exists or should, and all other tagged resources, by name.

    ``owners``: by attempt id; all attempts that have not ended, and ended ones whose sets exist.
    The cloud was listed before the rows were read, so no new set is taken for a leak. ``prices``:
    of the ``unpriced_offerings``, as far as they are known.
    """
    by_name = _by_name(owners)
    resources = []
    for s in scale_sets:
        if owner := by_name.get(s.name):
            resources.append(_audit_owned(s, owner, now))
        else:
            tags = s.tags.get(attempt_tag, ""), s.tags.get(job_tag, "")
            resources.append(_audit_unowned(s, prices, *tags))
    names = {s.name for s in scale_sets}
    resources += [
        _audit_missing(name, owner)
        for name, owner in by_name.items()
        if name not in names and owner.state in ATTEMPT_WITH_NODES
    ]
    resources += [
        _audit_untracked(r, r.tags.get(attempt_tag, ""), r.tags.get(job_tag, "")) for r in untracked
    ]
    return sorted(resources, key=lambda f: f.name)


def unpriced_offerings(
    scale_sets: Sequence[ScaleSet], owners: Mapping[str, ScaleSetOwner]
) -> list[Offering]:
    """Return the offerings of scale sets whose price no row knows."""
    by_name = _by_name(owners)
    offerings = {_offering(s) for s in scale_sets if s.name not in by_name}
    return sorted(offering for offering in offerings if offering.region and offering.vm_size)


def hourly_by_standing(resources: Sequence[AuditedResource]) -> dict[AuditStanding, Decimal]:
    """Return the hourly cost of each group; missing sets and unknown prices count as 0."""
    sums = dict.fromkeys(AuditStanding, Decimal(0))
    for resource in resources:
        if resource.standing is not AuditStanding.MISSING:
            sums[resource.standing] += resource.hourly or Decimal(0)
    return sums


def _by_name(owners: Mapping[str, ScaleSetOwner]) -> dict[str, ScaleSetOwner]:
    return {scale_set_name(o.attempt_id): o for o in owners.values()}


def _offering(scale_set: ScaleSet) -> Offering:
    """Return the set's offering, as Spot where the cloud does not state it."""
    return Offering(
        region=scale_set.region,
        vm_size=scale_set.vm_size,
        capacity_type=scale_set.capacity_type or CapacityType.SPOT,
        engine=scale_set.engine,
    )


def _audit_owned(scale_set: ScaleSet, owner: ScaleSetOwner, now: datetime) -> AuditedResource:
    machines = _machines(scale_set)
    return AuditedResource(
        name=scale_set.name,
        standing=_standing(owner, now),
        region=scale_set.region or owner.region,
        vm_size=scale_set.vm_size or owner.vm_size,
        attempt_id=owner.attempt_id,
        job_id=owner.job_id,
        state=owner.state,
        phase=scale_set.phase,
        machines=machines,
        since=scale_set.created_at,
        hourly=owner.hourly * machines,
    )


def _audit_unowned(
    scale_set: ScaleSet, prices: Mapping[Offering, Price], attempt_id: str, job_id: str
) -> AuditedResource:
    machines, offering = _machines(scale_set), _offering(scale_set)
    price = prices.get(offering)
    guessed = price is not None and scale_set.capacity_type is None
    return AuditedResource(
        name=scale_set.name,
        standing=AuditStanding.UNKNOWN,
        region=scale_set.region,
        vm_size=scale_set.vm_size,
        attempt_id=attempt_id,
        job_id=job_id,
        state="",
        phase=scale_set.phase,
        machines=machines,
        since=scale_set.created_at,
        hourly=price.hourly * machines if price else None,
        assumed=offering.capacity_type if guessed else None,
    )


def _machines(scale_set: ScaleSet) -> int:
    return scale_set.capacity if scale_set.capacity is not None else len(scale_set.instances)


def _standing(owner: ScaleSetOwner, now: datetime) -> AuditStanding:
    if owner.state in (AttemptState.ENDED, AttemptState.PENDING):
        return AuditStanding.UNKNOWN
    if owner.state is not AttemptState.TERMINATING:
        return AuditStanding.USED
    return (
        AuditStanding.LINGERING if now - owner.since > TOO_LONG_TO_DELETE else AuditStanding.GOING
    )


def _audit_untracked(resource: TaggedResource, attempt_id: str, job_id: str) -> AuditedResource:
    return AuditedResource(
        name=f"{resource.kind}/{resource.name}",  # a last word alone is that of several providers
        kind=resource.kind,
        standing=AuditStanding.UNTRACKED,
        region=resource.region,
        vm_size="",
        attempt_id=attempt_id,
        job_id=job_id,
        state="",
        phase="",
        machines=0,
        since=None,
        hourly=None,
    )


def _audit_missing(name: str, owner: ScaleSetOwner) -> AuditedResource:
    return AuditedResource(
        name=name,
        standing=AuditStanding.MISSING,
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
