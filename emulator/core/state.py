"""What the emulated subscription holds: frozen rows, and the one place that changes them.

New members of a row have a default. `emulator.core.store` writes each row that changed by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar

from emulator.core.market_rows import MeteredUsage, PlantedPrice, Restriction
from emulator.core.rows import FrozenRow, Ledger, Path, R
from emulator.core.virtual_time import Anchor

ANY_PRICE = Decimal(-1)


@dataclass(frozen=True, slots=True)
class Eviction(FrozenRow):
    """Azure's wish to have a Spot instance back."""

    event_id: str
    not_before: float  # unix seconds; the instance is killed then
    announced: bool  # shown as a scheduled event
    acknowledged: bool = False  # the VM said it is ready: kill it now
    lingers: bool = False  # Azure's fault: afterwards it stays in the list, stopped


@dataclass(frozen=True, slots=True)
class InstanceRow(FrozenRow):
    """One VM of a scale set.

    ``phase`` is creating, allocated, deallocated (evicted but kept), or failed (no machine).
    ``doom`` says why it is about to be killed: evicted, deleted, or surplus (scaled in), or an
    order of its owner (`compute.power`) after which it is still there; empty while it may live.
    """

    key_member: ClassVar[str] = "instance_id"
    set_key: str  # of its scale set
    instance_id: str
    vm_id: str
    token: str  # in the metadata address that only this VM's processes know
    address: str
    created_at: float
    phase: str = "creating"
    error: dict[str, str] | None = None  # why its provisioning failed
    booted: bool = False
    doom: str = ""
    eviction: Eviction | None = None
    incarnation: int = 0  # of the scheduled events document
    stopped: bool = False  # powered off, but allocated
    busy: str = ""  # the order of its owner that is being carried out
    zone: str = ""
    etag: int = 1
    applied: int = 0  # the version of the scale set's model that it has
    maintenance: list[dict[str, Any]] = field(default_factory=list)  # `machines.maintenance`
    events_asked_at: float = 0.0  # when the VM last asked for its events, to the hour
    events_on_at: float = 0.0  # from when on it sees them

    @property
    def row_path(self) -> Path:
        """Return the path of the row, below its scale set."""
        return "scale_sets", self.set_key, "instances", self.instance_id


@dataclass(frozen=True, slots=True)
class ScaleSetRow(FrozenRow):
    """One scale set: the model as Azure would answer it, and what Azure keeps to itself.

    All versions of a row share ``instances``, in which only the state puts and removes instances.
    """

    table: ClassVar[str] = "scale_sets"
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
    owner: str = ""  # key of the resource of another service that it is hidden behind
    version: int = 0  # of what instances are made from
    mixed_size: str = ""  # which of the sizes of an instance mix its instances have
    instances: Mapping[str, InstanceRow] = field(default_factory=dict, metadata={"table": True})

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
        return self.mixed_size or str(self.model["sku"]["name"])

    @property
    def capacity(self) -> int:
        """The wanted number of instances."""
        return int(self.model["sku"]["capacity"])

    @property
    def profile(self) -> dict[str, Any]:
        """The virtual machine profile."""
        profile: dict[str, Any] = self.model["properties"].get("virtualMachineProfile") or {}
        return profile

    @property
    def spot(self) -> bool:
        """Whether its instances can be evicted."""
        return str(self.profile.get("priority")) in ("Spot", "Low")

    @property
    def max_price(self) -> Decimal:
        """The maximum price in US dollars per hour, or ANY_PRICE."""
        price = (self.profile.get("billingProfile") or {}).get("maxPrice")
        return ANY_PRICE if price is None else Decimal(str(price))

    @property
    def flexible(self) -> bool:
        """Whether its instances are virtual machines with names of their own."""
        return bool(self.model["properties"].get("orchestrationMode") == "Flexible")

    @property
    def ephemeral(self) -> bool:
        """Whether the OS disks lie on the hosts, and are gone when a VM leaves its host."""
        storage = self.profile.get("storageProfile") or {}
        return bool((storage.get("osDisk") or {}).get("diffDiskSettings"))

    def resized(self, capacity: int) -> "ScaleSetRow":
        """Return a version with this wanted number of instances."""
        return replace(self, model=self.model | {"sku": self.model["sku"] | {"capacity": capacity}})

    def vm_name(self, instance: InstanceRow) -> str:
        """Return the name of one instance, as ARM and the metadata service give it."""
        name = instance.instance_id
        return name if self.flexible else f"{self.name}_{name}"

    def computer_name(self, instance: InstanceRow) -> str:
        """Return the host name of one instance: the prefix with its id in base 36, six digits."""
        prefix = (self.profile.get("osProfile") or {}).get("computerNamePrefix") or self.name
        if self.flexible:
            return f"{prefix}{instance.instance_id[-8:-2]}".lower()
        digits, number = "", int(instance.instance_id)
        while number:
            number, digit = divmod(number, 36)
            digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        return f"{prefix}{digits:0>6}".lower()

    def vm_resource_id(self, instance: InstanceRow) -> str:
        """Return the resource id of one instance."""
        if self.flexible:
            return virtual_machine_id(self.subscription, self.group, instance.instance_id)
        return f"{self.id}/virtualMachines/{instance.instance_id}"


@dataclass(frozen=True, slots=True)
class ResourceGroup(FrozenRow):
    """A named folder of resources."""

    table: ClassVar[str] = "groups"
    subscription: str
    name: str
    location: str
    tags: dict[str, str]
    deleting: bool = False

    @property
    def key(self) -> str:
        """The resource id in lower case."""
        return group_id(self.subscription, self.name).lower()


@dataclass(frozen=True, slots=True)
class ResourceRow(FrozenRow):
    """Any other ARM resource: what was put, as it is answered."""

    table: ClassVar[str] = "resources"
    id: str  # as it was first written
    type: str  # "Microsoft.Network/virtualNetworks"
    location: str
    body: dict[str, Any]  # without id, name, type
    created_at: float
    etag: int = 1
    provisioning_state: str = "Succeeded"

    @property
    def key(self) -> str:
        """The resource id in lower case."""
        return self.id.lower()

    @property
    def subscription(self) -> str:
        """The subscription that it is in."""
        return self.id.split("/")[2]

    @property
    def name(self) -> str:
        """The last part of the id."""
        return self.id.rpartition("/")[2]

    @property
    def tracked(self) -> bool:
        """Whether lists of everything have it: what is in a group, and a part of nothing."""
        grouped = "/resourcegroups/" in self.key
        return bool(self.location) and grouped and "microsoft.authorization/" not in self.key


@dataclass(frozen=True, slots=True)
class OperationRow(FrozenRow):
    """A long operation.

    ``kind`` is put, restore, delete, delete_instances or delete_group, or an action.
    """

    table: ClassVar[str] = "operations"
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
    granted: int = 0  # ... after this number of instances was allocated
    keeps_failed: bool = False  # ... and the others stay in the list
    late: int = 0  # this number of instances comes later than the others ...
    late_by: float = 0.0  # ... by this number of seconds
    alone: bool = False  # concerns one VM, and its scale set shows nothing of it
    held_by: str = ""  # the fault that makes it take so long
    input: dict[str, Any] = field(default_factory=dict)  # what an action needs to know


@dataclass(frozen=True, slots=True)
class FaultRow(FrozenRow):
    """A planted fault; see `emulator.faults.planted`. Empty members match anything."""

    table: ClassVar[str] = "faults"
    id: str
    kind: str
    method: str = ""
    path: str = ""  # a regular expression, found somewhere in the path
    region: str = ""
    vm_size: str = ""
    count: int | None = None  # how often it strikes; None: as long as it is there
    until: float | None = None
    status: int = 500
    code: str = ""
    message: str = ""
    retry_after: int = 10
    delay: float | None = None
    when: str = "before"
    instances: int = 1
    policy: str = ""
    struck: int = 0

    def live(self, now: float) -> bool:
        """Whether it can strike still."""
        is_exhausted = self.count is not None and self.struck >= self.count
        return not is_exhausted and (self.until is None or now < self.until)


@dataclass(frozen=True, slots=True)
class Globals(FrozenRow):
    """The values that exist once."""

    table: ClassVar[str] = "globals"
    capacity: dict[str, int] = field(default_factory=dict)  # "region/size" -> left to allocate
    next_address: int = 1
    time: Anchor | None = None

    @property
    def key(self) -> str:
        """The only one."""
        return ""


KINDS: tuple[type[FrozenRow], ...] = (
    *(Globals, ResourceGroup, ScaleSetRow, OperationRow, FaultRow, ResourceRow),
    *(Restriction, PlantedPrice, MeteredUsage),
)


class EmulatorState:
    """Everything that survives a restart of the emulator; the only place where rows change."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.groups: Mapping[str, ResourceGroup] = {}
        self.scale_sets: Mapping[str, ScaleSetRow] = {}
        self.operations: Mapping[str, OperationRow] = {}
        self.faults: Mapping[str, FaultRow] = {}
        self.resources: Mapping[str, ResourceRow] = {}
        self.restrictions: Mapping[str, Restriction] = {}
        self.planted_prices: Mapping[str, PlantedPrice] = {}
        self.metered: Mapping[str, MeteredUsage] = {}
        self._globals = {"": Globals()}

    @property
    def globals(self) -> Globals:
        """The values that exist once."""
        return self._globals[""]

    def put(self, row: R) -> R:
        """Put a row in the place of the one with its key, or last; return it."""
        table = self._table(row.row_path)
        self.ledger.note(row.row_path, new=row.key not in table)
        table[row.key] = row
        return row

    def now(self, row: R) -> R:
        """Return the version of a row that the state has now; KeyError if it is gone."""
        version: R = self._table(row.row_path)[row.key]
        return version

    def change(self, row: R, **members: Any) -> R:  # noqa: ANN401 - whatever the fields take
        """Change members of a row as the state has it now; return the new version."""
        return self.put(replace(self.now(row), **members))

    def remove(self, row: FrozenRow) -> None:
        """Remove a row with all rows in it, if it is there."""
        if self.row_at(row.row_path) is None:
            return
        for instance in list(row.instances.values()) if isinstance(row, ScaleSetRow) else ():
            self.remove(instance)
        del self._table(row.row_path)[row.key]
        self.ledger.note(row.row_path, removed=True)

    def resize(self, scale_set: ScaleSetRow, delta: int) -> ScaleSetRow:
        """Add to the capacity of a scale set, or take from it, down to 0."""
        now = self.now(scale_set)
        return self.put(now.resized(max(now.capacity + delta, 0)))

    def end(
        self,
        operation: OperationRow,
        now: float,
        error: dict[str, str] | None = None,
        status: str = "",
    ) -> OperationRow:
        """Close an operation: Succeeded without an error, Failed with one, or with ``status``."""
        status = status or ("Failed" if error else "Succeeded")
        return self.change(operation, status=status, error=error, ended_at=now)

    def row_at(self, path: Path) -> FrozenRow | None:
        """Return the row that is there, or None."""
        if len(path) > 2 and path[1] not in self.scale_sets:
            return None
        row: FrozenRow | None = self._table(path).get(path[-1])
        return row

    def rows(self) -> dict[Path, FrozenRow]:
        """Return every row by its path; a scale set comes before its instances."""
        tables = [self._table((kind.table, "")) for kind in KINDS]
        tables += [dict(scale_set.instances) for scale_set in self.scale_sets.values()]
        return {row.row_path: row for table in tables for row in table.values()}

    def visible(self, start: str) -> list[ScaleSetRow]:
        """Return the scale sets whose keys start so, without those of other services."""
        return [s for s in self.scale_sets.values() if s.key.startswith(start) and not s.owner]

    def _table(self, path: Path) -> dict[str, Any]:
        table: Any = self._globals if path[0] == Globals.table else getattr(self, path[0])
        rows: dict[str, Any] = table if len(path) == 2 else table[path[1]].instances
        return rows


def group_id(subscription: str, name: str) -> str:
    """ARM's id of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{name}"


def scale_set_id(subscription: str, group: str, name: str) -> str:
    """ARM's id of a scale set."""
    provider = "providers/Microsoft.Compute"
    return f"{group_id(subscription, group)}/{provider}/virtualMachineScaleSets/{name}"


def virtual_machine_id(subscription: str, group: str, name: str) -> str:
    """ARM's id of a virtual machine."""
    return f"{group_id(subscription, group)}/providers/Microsoft.Compute/virtualMachines/{name}"
