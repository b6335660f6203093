"""What the emulated subscription holds, and its one file on disk.

All of it is written at once, so a change is either wholly there or not at all after a crash.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Eviction:
    """Azure's wish to have a Spot instance back."""

    event_id: str
    not_before: float  # unix seconds; the instance is killed then
    announced: bool  # shown as a scheduled event
    acknowledged: bool = False  # the VM said it is ready: kill it now
    lingers: bool = False  # Azure's fault: afterwards it stays in the list, stopped

    def due(self, now: float) -> bool:
        """Whether the instance is to be killed."""
        return self.acknowledged or now >= self.not_before


@dataclass
class Instance:
    """One VM of a scale set.

    ``phase`` is creating, allocated, or deallocated (evicted but kept). ``doom`` says why it is
    about to be killed: evicted, deleted, or surplus (scaled in); empty while it may live.
    """

    instance_id: str
    vm_id: str
    token: str  # in the metadata address that only this VM's processes know
    address: str
    created_at: float
    phase: str = "creating"
    booted: bool = False
    doom: str = ""
    eviction: Eviction | None = None
    incarnation: int = 0  # of the scheduled events document


@dataclass
class ScaleSet:
    """One scale set: the model as Azure would answer it, and what Azure keeps to itself."""

    subscription: str
    group: str
    name: str
    model: dict[str, Any]  # location, sku, tags, properties; without secrets
    custom_data: str  # base64; never answered
    created_at: float
    unique_id: str
    provisioning_state: str = "Creating"
    error: dict[str, str] | None = None
    etag: int = 1
    next_instance: int = 0  # ids are never used again
    instances: dict[str, Instance] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The resource id in lower case: ARM's names know no case."""
        return scale_set_id(self.subscription, self.group, self.name).lower()

    @property
    def id(self) -> str:
        """The resource id as it was first written."""
        return scale_set_id(self.subscription, self.group, self.name)

    @property
    def location(self) -> str:
        """The region."""
        return str(self.model["location"])

    @property
    def vm_size(self) -> str:
        """The VM size of every instance."""
        return str(self.model["sku"]["name"])

    @property
    def capacity(self) -> int:
        """How many instances there should be."""
        return int(self.model["sku"]["capacity"])

    @capacity.setter
    def capacity(self, count: int) -> None:
        self.model["sku"]["capacity"] = count

    @property
    def profile(self) -> dict[str, Any]:
        """The virtual machine profile."""
        profile: dict[str, Any] = self.model["properties"].get("virtualMachineProfile") or {}
        return profile

    @property
    def spot(self) -> bool:
        """Whether its instances can be evicted."""
        return str(self.profile.get("priority")) in ("Spot", "Low")

    def vm_name(self, instance: Instance) -> str:
        """The name of one instance as ARM and the metadata service give it."""
        return f"{self.name}_{instance.instance_id}"


@dataclass
class ResourceGroup:
    """A named folder of resources."""

    subscription: str
    name: str
    location: str
    tags: dict[str, str]
    deleting: bool = False

    @property
    def key(self) -> str:
        """The resource id in lower case."""
        return group_id(self.subscription, self.name).lower()


@dataclass
class Operation:
    """A long operation; ``kind`` is put, delete, delete_instances or delete_group."""

    id: str
    kind: str
    subscription: str
    location: str
    target: str  # key of the scale set or resource group
    accepted_at: float
    due_at: float
    status: str = "InProgress"
    error: dict[str, str] | None = None
    ended_at: float | None = None
    instance_ids: list[str] = field(default_factory=list)  # of delete_instances
    refusal: dict[str, str] | None = None  # it is to fail with this when it is due ...
    granted: int = 0  # ... after so many instances were allocated
    held_by: str = ""  # the fault that makes it take so long

    def end(self, now: float, error: dict[str, str] | None = None, status: str = "") -> None:
        """Close it: Succeeded without an error, Failed with one, unless ``status`` says."""
        self.status = status or ("Failed" if error else "Succeeded")
        self.error = error
        self.ended_at = now


@dataclass
class Fault:
    """A fault that is planted; see `emulator.faults`. Empty members match anything."""

    id: str
    kind: str
    method: str = ""
    path: str = ""  # a regular expression, found somewhere in the path
    region: str = ""
    vm_size: str = ""
    count: int | None = None  # strikes so often; None: as long as it is there
    until: float | None = None
    status: int = 500
    code: str = ""
    message: str = ""
    retry_after: int = 10
    delay: float | None = None
    when: str = "before"
    instances: int = 1
    struck: int = 0

    def live(self, now: float) -> bool:
        """Whether it can strike still."""
        worn_out = self.count is not None and self.struck >= self.count
        return not worn_out and (self.until is None or now < self.until)


@dataclass
class State:
    """Everything that survives a restart of the emulator."""

    groups: dict[str, ResourceGroup] = field(default_factory=dict)
    scale_sets: dict[str, ScaleSet] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)  # "region/size" -> left to allocate
    next_address: int = 1
    faults: dict[str, Fault] = field(default_factory=dict)


def group_id(subscription: str, name: str) -> str:
    """ARM's id of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{name}"


def scale_set_id(subscription: str, group: str, name: str) -> str:
    """ARM's id of a scale set."""
    provider = "providers/Microsoft.Compute"
    return f"{group_id(subscription, group)}/{provider}/virtualMachineScaleSets/{name}"


def load(file: Path) -> State:
    """Read the state, or begin an empty one."""
    if not file.exists():
        return State()
    data = json.loads(file.read_text())
    return State(
        groups={k: ResourceGroup(**v) for k, v in data["groups"].items()},
        scale_sets={k: _scale_set(v) for k, v in data["scale_sets"].items()},
        operations={k: Operation(**v) for k, v in data["operations"].items()},
        capacity=data["capacity"],
        next_address=data["next_address"],
        faults={k: Fault(**v) for k, v in data.get("faults", {}).items()},
    )


def save(state: State, file: Path) -> None:
    """Replace the file. Not synced to the disk: the VMs would not survive a power cut either."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(state)))
    fresh.replace(file)


def _scale_set(data: dict[str, Any]) -> ScaleSet:
    instances = {k: _instance(v) for k, v in data.pop("instances").items()}
    return ScaleSet(**data, instances=instances)


def _instance(data: dict[str, Any]) -> Instance:
    eviction = data.pop("eviction")
    return Instance(**data, eviction=Eviction(**eviction) if eviction else None)
