"""Machines as the service sees them: offerings, scale sets and their instances."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from contract.choices import Engine
from service.domain.states import CapacityType


@dataclass(frozen=True, kw_only=True, order=True)
class Offering:
    """A place to run: one VM size in one region, bought one way and run by one engine."""

    region: str
    vm_size: str
    capacity_type: CapacityType
    engine: Engine = Engine.SCALE_SET
    # An existing cluster of the workspace to run on; "": one for each attempt. A setting, which no
    # row of the database has: two offerings never differ by it alone.
    cluster: str = field(default="", compare=False)

    @property
    def pool(self) -> str:
        """Where its cores and its calls are counted; see `pool`."""
        return pool(self.region, self.engine)

    @property
    def has_metadata(self) -> bool:
        """Whether the metadata service tells machines who they are, and that they are evicted.

        Microsoft documents none for the container of a job in Azure ML.
        """
        return self.engine is Engine.SCALE_SET

    def __str__(self) -> str:
        bought = self.capacity_type.replace("_", "-")
        where = ", Azure ML" if self.engine is Engine.AZUREML else ""
        return f"{self.vm_size} in {self.region} ({bought}{where})"


def longest_run(offering: Offering) -> timedelta | None:
    """For how long the engine lets a job run; None: for ever.

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
    """Everything a cloud needs to make one scale set; the same spec may be sent again."""

    name: str
    offering: Offering
    instance_count: int
    cloud_init: str
    node_config: str = ""  # what cloud-init leaves on each node, for engines that know none
    image: str = ""  # of the container; the same
    tags: dict[str, str] = field(default_factory=dict)


class ScaleSetPhase(StrEnum):
    """How far a scale set is."""

    INCOMPLETE = "incomplete"  # made by several calls, some of them not made yet: create it again
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"


class Failure(StrEnum):
    """What the failure of a scale set means for whoever asked for it."""

    NO_CAPACITY = "no_capacity"  # no room or no quota there: ask elsewhere, or later
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
    """What the cloud says about one scale set right now."""

    name: str
    phase: ScaleSetPhase
    instances: tuple[Instance, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    error_code: str = ""
    error_message: str = ""  # what happened, and what a person can do about it
    failure: Failure = Failure.TRANSIENT  # what the error means, where the phase is FAILED
    created_at: datetime | None = None  # when the cloud took the order, by its own clock
    capacity: int | None = None  # machines that it is to have; lower once one is taken
    region: str = ""
    vm_size: str = ""
    capacity_type: CapacityType | None = None  # None: the cloud does not tell
    engine: Engine = Engine.SCALE_SET

    @property
    def pool(self) -> str:
        """Where its cores and its calls are counted; see `pool`."""
        return pool(self.region, self.engine)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Something beside scale sets that carries our tag: a disk, a network interface, an address."""

    kind: str  # as Azure names its type, e.g. "Microsoft.Compute/disks"
    name: str
    region: str = ""
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SpotCores:
    """A region's quota of Spot cores, all VM sizes together; ``limit`` is None where not told."""

    limit: int | None
    used: int  # by everybody in the subscription


def pool(region: str, engine: Engine) -> str:
    """The region, where an engine has cores and request limits of its own with the engine's name.

    >>> pool("eastus", Engine.SCALE_SET), pool("eastus", Engine.AZUREML)
    ('eastus', 'eastus/azureml')
    """
    return region if engine is Engine.SCALE_SET else f"{region}/{engine}"


def scale_set_name(attempt_id: str) -> str:
    """The name an attempt's scale set always has, so that creating it twice is harmless.

    >>> scale_set_name("att-01jd8m4x9g5v0c3k2n7p6q8r1s")
    'rk-01jd8m4x9g5v0c3k2n7p6q8r1s'
    """
    return "rk-" + attempt_id.removeprefix("att-")
