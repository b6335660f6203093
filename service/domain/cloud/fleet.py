"""Describe machines as the service sees them: offerings, scale sets and their instances."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from contract.choices import Engine
from service.domain.states import CapacityType


@dataclass(frozen=True, kw_only=True, order=True)
class Offering:
    """One VM size in one region with a capacity type and the engine that runs it."""

    region: str
    vm_size: str
    capacity_type: CapacityType
    engine: Engine = Engine.SCALE_SET
    # An existing cluster of the workspace to run on; "": one for each attempt. A setting, which no
    # row of the database has: two offerings never differ by it alone.
    cluster: str = field(default="", compare=False)

    @property
    def pool(self) -> str:
        """Return the name under which its cores and calls are counted; see `pool_name`."""
        return pool_name(self.region, self.engine)

    @property
    def has_metadata(self) -> bool:
        """Return whether the instance metadata service announces evictions to machines.

        Microsoft documents none for the container of a job in Azure ML.
        """
        return self.engine is Engine.SCALE_SET

    def __str__(self) -> str:
        capacity_type = self.capacity_type.replace("_", "-")
        suffix = ", Azure ML" if self.engine is Engine.AZUREML else ""
        return f"{self.vm_size} in {self.region} ({capacity_type}{suffix})"


def max_run_time(offering: Offering) -> timedelta | None:
    """Return the longest time that the engine lets a job run; None: no limit.

    Azure ML ends a job after 7 days on low priority and after 21 else (Microsoft Learn, "Manage and
    increase quotas and limits for resources with Azure Machine Learning").
    """
    if offering.engine is Engine.SCALE_SET:
        return None
    return timedelta(days=7 if offering.capacity_type is CapacityType.SPOT else 21)


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per hour of one instance, as bought and on demand."""

    hourly: Decimal
    on_demand_hourly: Decimal


@dataclass(frozen=True, kw_only=True)
class ScaleSetSpec:
    """Everything that a cloud needs to create one scale set; sending it twice is safe."""

    name: str
    offering: Offering
    instance_count: int
    cloud_init: str
    node_config: str = ""  # what cloud-init leaves on each node, for engines that know none
    image: str = ""  # of the container; the same
    tags: dict[str, str] = field(default_factory=dict)


class ScaleSetPhase(StrEnum):
    """The provisioning phase of a scale set."""

    INCOMPLETE = "incomplete"  # made by several calls, some of them not made yet: create it again
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"


class ScaleSetFailure(StrEnum):
    """What the caller does about a failed scale set."""

    NO_CAPACITY = "no_capacity"  # no capacity or no quota: try another region, or later
    MISCONFIGURED = "misconfigured"  # the same again until a person acts
    TRANSIENT = "transient"  # Azure's own fault: try again


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One VM of a scale set; ``running`` is False for one that lingers stopped."""

    instance_id: str
    vm_id: str
    name: str
    running: bool = True
    created_at: datetime | None = None  # by the cloud's clock


@dataclass(frozen=True, kw_only=True)
class ScaleSet:
    """The present state of one scale set as the cloud reports it."""

    name: str
    phase: ScaleSetPhase
    instances: tuple[Instance, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    error_code: str = ""
    error_message: str = ""  # what happened, and what a person can do about it
    # What the error means, where the phase is FAILED.
    failure: ScaleSetFailure = ScaleSetFailure.TRANSIENT
    created_at: datetime | None = None  # when the cloud took the order, by its own clock
    capacity: int | None = None  # machines that it is to have; lower once one is taken
    region: str = ""
    vm_size: str = ""
    capacity_type: CapacityType | None = None  # None: the cloud does not tell
    engine: Engine = Engine.SCALE_SET

    @property
    def pool(self) -> str:
        """Return the name under which its cores and calls are counted; see `pool_name`."""
        return pool_name(self.region, self.engine)


@dataclass(frozen=True, kw_only=True)
class TaggedResource:
    """A resource with our tag that is no scale set: a disk, a network interface, an address."""

    kind: str  # as Azure names its type, e.g. "Microsoft.Compute/disks"
    name: str
    region: str = ""
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SpotCores:
    """A region's quota of Spot cores over all VM sizes; ``limit`` None: unknown."""

    limit: int | None
    used: int  # by everybody in the subscription


def pool_name(region: str, engine: Engine) -> str:
    """Return the region, with the engine's name where the engine has quotas of its own.

    >>> pool_name("eastus", Engine.SCALE_SET), pool_name("eastus", Engine.AZUREML)
    ('eastus', 'eastus/azureml')
    """
    return region if engine is Engine.SCALE_SET else f"{region}/{engine}"


def scale_set_name(attempt_id: str) -> str:
    """Return the name of an attempt's scale set; it never changes, so creation is idempotent.

    >>> scale_set_name("att-01jd8m4x9g5v0c3k2n7p6q8r1s")
    'rk-01jd8m4x9g5v0c3k2n7p6q8r1s'
    """
    return "rk-" + attempt_id.removeprefix("att-")
