"""A cloud in memory that behaves like Azure.

Creation takes time and may be refused after it was accepted, a fresh scale set is invisible for a
while, deletion takes time, instances are evicted or linger stopped, calls are throttled, answers
get lost. It passes the same contract tests as the Azure adapter.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from contract.choices import Engine
from service.cloud.azure.errors import classify_failure
from service.cloud.azureml.model_registry import RegisteredModel
from service.cloud.provider import (
    OWNER_TAG,
    SERIAL_LOG_BYTES,
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import (
    Instance,
    Offering,
    ScaleSet,
    ScaleSetPhase,
    ScaleSetSpec,
    SpotCores,
    TaggedResource,
)
from service.domain.performance.vm_catalogue import lookup
from service.domain.states import CapacityType


@dataclass
class _Entry:
    spec: ScaleSetSpec
    tags: dict[str, str]
    accepted_at: datetime
    create_time: timedelta
    fails_late: bool
    instances: dict[str, Instance]
    late_code: str
    late_message: str
    next_number: int  # of the next instance; none is given twice
    stragglers: Collection[str] = ()  # instance ids; these come later than the others ...
    straggler_delay: timedelta = timedelta(0)  # ... by this much
    refill_at: datetime | None = None  # accepted then, and under way
    refill_count: int = 0  # machines that it adds
    refill_failed: bool = False  # the last one
    deleting_since: datetime | None = None
    delete_fails: bool = False  # the deletion under way
    delete_failed: bool = False  # the last one


@dataclass
class FakeCloud:
    """A cloud in memory. Tests set its attributes and advance the clock.

    ``replace(cloud, owner="another")`` is the same cloud as another deployment sees it.
    """

    now: Callable[[], datetime]
    owner: str = "test"
    create_time: timedelta = timedelta(minutes=3)
    delete_time: timedelta = timedelta(minutes=2)
    visible_after: timedelta = timedelta(seconds=20)  # the read lag
    sold_out: set[Offering] = field(default_factory=set)  # refused at once
    sold_out_late: set[Offering] = field(default_factory=set)  # accepted, then refused
    late_code: str = "AllocationFailed"  # of what is accepted and then refused
    late_message: str = "There is no capacity left."  # the same
    partial_capacity: dict[Offering, int] = field(default_factory=dict)  # machines before a failure
    lists_failed_instances: bool = False  # those that did not come are listed, and do not run
    stragglers: dict[Offering, int] = field(default_factory=dict)  # machines that come later ...
    straggler_delay: timedelta = timedelta(minutes=10)  # ... by this much
    failing_deletes: int = 0  # deletions that are accepted and fail
    fail_next: list[CloudError] = field(default_factory=list)  # raised by the next calls
    fail_creates: list[CloudError] = field(default_factory=list)  # raised by the next creates
    spot_quotas: dict[str, SpotCores] = field(default_factory=dict)  # by region; others: no limit
    untracked: list[TaggedResource] = field(default_factory=list)  # other resources, of any owner
    serial_logs: dict[str, bytes] = field(default_factory=dict)  # by name; others: a line
    fail_serial_logs: bool = False
    lose_answers: int = 0  # creates and deletes that succeed and seem to fail
    calls: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)

    async def create(self, spec: ScaleSetSpec) -> None:
        self._record_call()
        if self.fail_creates:
            raise self.fail_creates.pop(0)
        if spec.name in self._entries:
            return self._answer()
        if spec.offering in self.sold_out:
            raise InsufficientCapacity(f"SkuNotAvailable: {spec.offering}", "SkuNotAvailable")
        refused = spec.offering in self.sold_out_late | self.partial_capacity.keys()
        count = self.partial_capacity.get(spec.offering, 0) if refused else spec.instance_count
        late = self.stragglers.get(spec.offering, 0)
        instances = {str(i): _instance(spec.name, i, self.now()) for i in range(count)}
        if refused and self.lists_failed_instances:
            for i in range(count, spec.instance_count):
                instances[str(i)] = replace(_instance(spec.name, i, self.now()), running=False)
        self._entries[spec.name] = _Entry(
            spec=spec,
            tags={**spec.tags, OWNER_TAG: self.owner},
            accepted_at=self.now(),
            create_time=self.create_time,
            fails_late=refused,
            instances=instances,
            stragglers=[str(i) for i in range(spec.instance_count - late, spec.instance_count)],
            straggler_delay=self.straggler_delay if late else timedelta(0),
            late_code=self.late_code,
            late_message=self.late_message,
            next_number=spec.instance_count,
        )
        return self._answer()

    async def get(self, name: str) -> ScaleSet:
        self._record_call()
        entry = self._visible_entry(name)
        if entry.tags[OWNER_TAG] != self.owner:
            raise Misconfigured(f"Scale set {name} belongs to {entry.tags[OWNER_TAG]}.")
        return self._describe(entry)

    async def list_owned(self) -> list[ScaleSet]:
        self._record_call()
        self._settle()
        return [
            replace(self._describe(entry), instances=())
            for entry in self._entries.values()
            if self._visible(entry) and entry.tags[OWNER_TAG] == self.owner
        ]

    async def list_tagged(self) -> list[TaggedResource]:
        self._record_call()
        return [
            resource for resource in self.untracked if resource.tags.get(OWNER_TAG) == self.owner
        ]

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        self._record_call()
        entry = self._visible_entry(name)
        if entry.spec.offering.engine is Engine.AZUREML:
            return self._answer()  # it gives a job its nodes again by itself
        is_created = self.now() - entry.accepted_at >= entry.create_time + entry.straggler_delay
        if entry.deleting_since or entry.refill_at or not is_created:
            return self._answer()
        running = {
            key: i for key, i in entry.instances.items() if i.running and i.vm_id not in useless
        }
        if len(running) < len(entry.instances):
            entry.instances = running
            return self._answer()
        if len(running) >= instance_count:
            return self._answer()
        offering = entry.spec.offering
        if offering in self.sold_out:
            raise InsufficientCapacity(f"SkuNotAvailable: {offering}", "SkuNotAvailable")
        entry.refill_at, entry.refill_failed = self.now(), False
        entry.refill_count = instance_count - len(running)
        entry.fails_late = offering in self.sold_out_late | self.partial_capacity.keys()
        entry.late_code, entry.late_message = self.late_code, self.late_message
        return self._answer()

    async def delete(self, name: str) -> None:
        self._record_call()
        entry = self._visible_entry(name)
        if entry.deleting_since is None:
            entry.deleting_since, entry.refill_at = self.now(), None
            entry.delete_fails = self.failing_deletes > 0
            self.failing_deletes -= entry.delete_fails
        self._answer()

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        self._record_call()
        machine = f"{name}_{instance_id}"
        if self.fail_serial_logs or instance_id not in self.machines(name):
            raise NoSerialLog(f"There is no serial log of {machine}.")
        return self.serial_logs.get(machine, b"cloud-init: booted\n")[-SERIAL_LOG_BYTES:]

    async def spot_cores(self, region: str) -> SpotCores:
        """Return the test's quota, with our own machines counted on top."""
        self._record_call()
        self._settle()
        quota = self.spot_quotas.get(region, SpotCores(limit=None, used=0))
        entries = (e for e in self._entries.values() if e.spec.offering.pool == region)
        spot = (e for e in entries if e.spec.offering.capacity_type is CapacityType.SPOT)
        return replace(quota, used=quota.used + sum(map(_cores, spot)))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def evict(self, name: str, instance_id: str = "0", *, lingers: bool = False) -> None:
        """Take one instance, as Azure does when it wants Spot capacity back.

        With ``lingers`` it stays in the list, stopped: an Azure fault that lasted for weeks. In
        Azure ML the job ends on all its nodes, and those that are left wait for the rest.
        """
        instances = self._entries[name].instances
        if self._entries[name].spec.offering.engine is Engine.AZUREML:
            for key, instance in instances.items():
                instances[key] = replace(instance, running=False)
        if lingers:
            instances[instance_id] = replace(instances[instance_id], running=False)
        else:
            del instances[instance_id]

    def restore(self, name: str) -> None:
        """Bring an instance back under a new id, as a Spot restore policy does."""
        _add(self._entries[name], self.now())

    def list_existing(self, besides: Collection[str]) -> list[ScaleSet]:
        """Return what exists as `get` shows it, without a call, except ``besides``."""
        fresh = [name for name in self._entries if name not in besides]
        self._settle(*fresh)
        return [self._describe(self._entries[n]) for n in fresh if n in self._entries]

    def machines(self, name: str) -> set[str]:
        """Instance ids of all that a scale set has, shown to the calls above or not."""
        return set(self._entries[name].instances) if name in self._entries else set()

    def billed_names(self) -> set[str]:
        """Names of all that exists and costs money, visible to the calls above or not."""
        self._settle()
        return set(self._entries)

    def _record_call(self) -> None:
        self.calls += 1
        if self.fail_next:
            raise self.fail_next.pop(0)

    def _answer(self) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise CloudError("The connection broke before the answer came.")

    def _visible_entry(self, name: str) -> _Entry:
        self._settle(name)
        entry = self._entries.get(name)
        if entry is None or not self._visible(entry):
            raise ScaleSetNotFound(f"There is no scale set {name}.")
        return entry

    def _visible(self, entry: _Entry) -> bool:
        return self.now() - entry.accepted_at >= self.visible_after

    def _settle(self, *names: str) -> None:
        """Drop what was deleted by now; where a deletion failed, everything is still there."""
        entries = [(name, self._entries[name]) for name in names if name in self._entries]
        for name, entry in entries if names else list(self._entries.items()):
            if entry.refill_at and self.now() - entry.refill_at >= entry.create_time:
                entry.refill_at, entry.refill_failed = None, entry.fails_late
                for _ in range(0 if entry.fails_late else entry.refill_count):
                    _add(entry, self.now())
            if entry.deleting_since and self.now() - entry.deleting_since >= self.delete_time:
                if entry.delete_fails:
                    entry.deleting_since, entry.delete_failed = None, True
                else:
                    del self._entries[name]

    def _describe(self, entry: _Entry) -> ScaleSet:
        made_until = entry.deleting_since or self.now()  # a delete ends the creation
        made_for = made_until - entry.accepted_at
        created = made_for >= entry.create_time + entry.straggler_delay
        created_instances = entry.instances if made_for >= entry.create_time else {}
        instances = [
            i for key, i in created_instances.items() if created or key not in entry.stragglers
        ]
        scale_set = ScaleSet(
            name=entry.spec.name,
            phase=ScaleSetPhase.READY if created else ScaleSetPhase.CREATING,
            instances=tuple(instances),
            tags=dict(entry.tags),
            created_at=entry.accepted_at,
            capacity=len(entry.instances),
            region=entry.spec.offering.region,
            vm_size=entry.spec.offering.vm_size,
            capacity_type=entry.spec.offering.capacity_type,
            engine=entry.spec.offering.engine,
        )
        if entry.deleting_since:
            return replace(scale_set, phase=ScaleSetPhase.DELETING)
        if entry.delete_failed:
            return replace(
                scale_set,
                phase=ScaleSetPhase.FAILED,
                error_code="InternalExecutionError",
                error_message="An internal execution error occurred. Please retry later.",
            )
        if entry.refill_at:
            return replace(scale_set, phase=ScaleSetPhase.CREATING)
        if created and (entry.refill_failed if entry.refill_count else entry.fails_late):
            kind, message = classify_failure(entry.late_code, entry.late_message)
            return replace(
                scale_set,
                phase=ScaleSetPhase.FAILED,
                error_code=entry.late_code,
                error_message=message,
                failure=kind,
            )
        return scale_set


def _cores(entry: _Entry) -> int:
    sku = lookup(entry.spec.offering.vm_size)
    return len(entry.instances) * (sku.vcpus if sku else 0)


def _add(entry: _Entry, now: datetime) -> None:
    number, entry.next_number = entry.next_number, entry.next_number + 1
    entry.instances[str(number)] = _instance(entry.spec.name, number, now)


def _instance(scale_set: str, number: int, now: datetime) -> Instance:
    """Instance ids are numbers, the VM id a UUID: a set that is made again has other machines."""
    name = f"{scale_set}_{number}"
    return Instance(
        instance_id=str(number),
        vm_id=str(uuid5(NAMESPACE_URL, f"vm:{name}:{now}")),
        name=name,
        created_at=now,
    )


@dataclass
class FakeRegistry:
    """A registry in memory."""

    models: dict[tuple[str, str], RegisteredModel] = field(default_factory=dict)
    fault: CloudError | None = None  # raised by each call, until it is taken away

    async def register(self, model: RegisteredModel) -> None:
        if self.fault:
            raise self.fault
        self.models.setdefault((model.name, model.version), model)

    async def close(self) -> None:
        pass
