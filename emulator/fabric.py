"""What happens as time passes: allocation, boot, eviction, deletion.

Requests only write down what is wanted and by when. The fabric looks at all of it, again and
again, and does what is due, so a restart in between loses and doubles nothing.
"""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.arm.request_log import RequestLog
from emulator.capacity import SpotCapacity, allocation
from emulator.compute import power
from emulator.core.agenda import Agenda, Machine
from emulator.core.errors import GUEST
from emulator.core.state import InstanceRow, OperationRow, ScaleSetRow
from emulator.core.store import StateFile
from emulator.core.virtual_time import resumed_time
from emulator.machines import processes
from emulator.machines.processes import MachineSpec, Processes
from emulator.market.metering import Meters

LONGEST_SLEEP = 1.0  # seconds between two looks
SHORTEST_SLEEP = 0.02
KINDS = ("put", "restore", "delete", "delete_instances", "delete_group")  # of operations done here
ALLOCATING = ("put", "restore")
DELETING = ("delete", "delete_group")
Chore = Callable[["Fabric", float], bool]  # done in each step; says whether it changed the state


@dataclass(frozen=True, kw_only=True)
class EmulatorSettings:
    """How this emulator behaves."""

    folder: Path
    images: dict[str, Any] = field(default_factory=dict)
    create_seconds: float = 3.0
    delete_seconds: float = 2.0
    notice_seconds: float = 30.0
    spot_quota: int = 1000  # cores per region
    azureml_quota: int = 1000  # low-priority cores per region
    cost_delay_seconds: float = 8 * 3600.0  # how late Cost Management is
    page_size: int = 100
    address_prefix: str = "127.77"  # of VM addresses; empty where only 127.0.0.1 works
    hollow: bool = False  # VMs run nothing: they only are
    access: str = "open"  # or "enforced": roles decide who may do what
    spot_capacity: Path | None = None  # JSON list of entries: `emulator.capacity.entries`
    throttling: str = "none"  # or azure: Azure's own limits
    blob_endpoint: str = ""  # of an Azurite that holds every storage account
    blob_key: str = ""
    proxies: bool = False  # each VM's traffic goes by a proxy of its own, which can be cut
    first_events_call_seconds: float = 0.0  # how long a VM's first question for events takes
    speed: float = 1.0  # of time
    seed: int = 0  # of everything that is drawn, save ids
    requests_kept: int = 1000  # in the log


class Fabric:
    """The state, and the loop that carries it forward."""

    def __init__(
        self, settings: EmulatorSettings, metadata_url: str, clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.metadata_base = metadata_url
        self._store = StateFile(settings.folder)
        self.state = self._store.state
        self._clock = clock
        self._time = resumed_time(self.state.globals.time, clock, settings.speed)
        self.state.change(self.state.globals, time=self._time)
        self._store.commit()
        self.requests = RequestLog(settings.requests_kept)
        self._agenda = Agenda(self.state)
        self.spot_capacity = SpotCapacity(
            settings.folder / "spot-capacity.json",
            settings.spot_capacity,
            foresight=settings.notice_seconds + LONGEST_SLEEP * settings.speed,
        )
        self._meters = Meters(self.state, self.spot_capacity)
        self.chores: list[Chore] = []
        self._processes = Processes()
        self._wake = asyncio.Event()
        self._stepping = asyncio.Lock()

    def now(self) -> float:
        """Return the time in the emulator, in unix seconds."""
        return self._time.at(self._clock())

    def changed(self) -> None:
        """Write the state down and look again soon; called before any request is answered."""
        self._commit()
        self._wake.set()

    async def run(self) -> None:
        """Carry the state forward until cancelled."""
        while True:
            await self.step()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._sleep_seconds())
            self._wake.clear()

    async def step(self) -> None:
        """Do everything that is due now."""
        async with self._stepping:
            self._store.check_there()
            for chore in self.chores:
                chore(self, self.now())
            self._begin(self.now())
            self._commit()
            self._processes.reap()
            self._boot()
            killed = await self._kill_doomed()
            self._finish(self.now(), killed)
            self._commit()

    def folder(self, instance: InstanceRow) -> Path:
        """Return the folder of the VM's disk and console."""
        return self.settings.folder / "vms" / instance.vm_id

    def metadata_url(self, instance: InstanceRow) -> str:
        """Return the address of the VM's metadata service."""
        return f"{self.metadata_base}/vm/{instance.token}"

    def running(self, instance: InstanceRow) -> bool:
        """Whether the VM is up; one that was never booted is not."""
        if self.settings.hollow:
            return instance.booted and instance.phase == "allocated" and not instance.stopped
        return instance.booted and processes.alive(self.folder(instance))

    def by_token(self, token: str) -> Machine | None:
        """Return the instance whose metadata service has this token, with its scale set."""
        return self._agenda.by_token(token)

    def instances(self) -> Iterator[Machine]:
        """Every instance with its scale set."""
        for scale_set in list(self.state.scale_sets.values()):
            for instance in list(scale_set.instances.values()):
                yield scale_set, instance

    def operations(self, target: str, kind: str) -> list[OperationRow]:
        """Return the unfinished operations of one kind on one resource."""
        return [o for o in self._agenda.operations(target) if o.kind == kind]

    def due(self, kinds: Container[str]) -> list[OperationRow]:
        """Return the unfinished operations of these kinds that are due."""
        return [o for o in self._agenda.due_operations(self.now()) if o.kind in kinds]

    def under_way(self) -> Iterator[OperationRow]:
        """Every unfinished operation."""
        return self._agenda.under_way()

    def next_address(self) -> str:
        """Return an address that no VM had before."""
        number, prefix = self.state.globals.next_address, self.settings.address_prefix
        self.state.change(self.state.globals, next_address=number + 1)
        return f"{prefix}.{number // 250 % 250}.{number % 250 + 1}" if prefix else "127.0.0.1"

    def _commit(self) -> None:
        for target in self._agenda.unsettled():
            for scale_set in self._sets(target):
                provisioning_state = _provisioning_state(scale_set, self._operations_of(scale_set))
                if scale_set.provisioning_state != provisioning_state:
                    self.state.change(scale_set, provisioning_state=provisioning_state)
        self._meters.read(self.now())
        self._store.commit()

    def _sleep_seconds(self) -> float:
        now = self.now()
        soonest = self._agenda.next_time(now)
        wait = LONGEST_SLEEP if soonest is None else (soonest - now) / self.settings.speed
        return min(max(wait, SHORTEST_SLEEP), LONGEST_SLEEP)

    def _begin(self, now: float) -> None:
        """Turn what is due into allocated and doomed instances."""
        for operation in self._due(now):
            self._begin_operation(operation, now)
        for instance in self._agenda.due_evictions(now):
            self.doom(instance, "evicted")

    def _due(self, now: float) -> list[OperationRow]:
        return [o for o in self._agenda.due_operations(now) if o.kind in KINDS]

    def _begin_operation(self, operation: OperationRow, now: float) -> None:
        for scale_set in self._sets(operation.target):
            if operation.kind in ALLOCATING:
                self._allocate(scale_set, operation, now)
            elif operation.refusal:
                self._fail(scale_set, operation, operation.refusal, now)
            else:
                self._doom(scale_set, operation)

    def _sets(self, target: str) -> list[ScaleSetRow]:
        """Return the scale set of this key, or those of the resource group of this key."""
        if "/providers/" not in target:
            inside = target + "/"
            sets = self.state.scale_sets.values()
            return [s for s in sets if s.key.startswith(inside) or s.owner.startswith(inside)]
        scale_set = self.state.scale_sets.get(target)
        return [scale_set] if scale_set else []

    def _operations_of(self, scale_set: ScaleSetRow) -> list[OperationRow]:
        """Return the unfinished operations on a scale set or on its resource group."""
        key = scale_set.owner or scale_set.key
        targets = (scale_set.key, key.partition("/providers/")[0])
        return [o for target in targets for o in self._agenda.operations(target)]

    def _allocate(self, scale_set: ScaleSetRow, operation: OperationRow, now: float) -> None:
        """Give room to the instances being created, to all or to none; doom surplus ones."""
        waiting = self._waiting(scale_set, operation)
        if operation.late:  # the others first
            waiting = waiting[: -operation.late]
            operation = self.state.change(operation, late=0, due_at=now + operation.late_by)
        granted, refusal = waiting[: operation.granted], operation.refusal
        if not refusal:
            granted, refusal = self.grant(scale_set, waiting)
        for instance in granted:
            self.state.change(instance, phase="allocated")
        if refusal:
            self._fail(scale_set, operation, refusal, now)
        elif operation.kind == "put":
            for instance in _surplus(scale_set):
                self.state.change(instance, doom="surplus")

    def _waiting(self, scale_set: ScaleSetRow, operation: OperationRow) -> list[InstanceRow]:
        """Return the instances that the operation allocates; restores have their own."""
        restoring = {
            name
            for restore in self.operations(scale_set.key, "restore")
            if restore.id != operation.id
            for name in restore.instance_ids
        }
        named = operation.instance_ids if operation.kind == "restore" else scale_set.instances
        instances = (i for name in named if (i := scale_set.instances.get(name)))
        return [
            i
            for i in instances
            if i.phase == "creating" and not i.doom and i.instance_id not in restoring
        ]

    def _fail(
        self, scale_set: ScaleSetRow, operation: OperationRow, why: dict[str, str], now: float
    ) -> None:
        """End the operation, and with it the instances that found no room."""
        for instance in self._waiting(scale_set, operation):
            if operation.keeps_failed:
                runs = why["code"].startswith(GUEST)
                phase = "allocated" if runs else "failed"
                self.state.change(instance, error=why, phase=phase)
                continue
            self.state.remove(instance)
            if operation.kind == "restore":
                self.state.resize(scale_set, -1)
        if operation.kind != "restore":  # a restore is only the platform's try
            self.state.change(scale_set, error=why)
        self.state.end(operation, now, why)

    def grant(
        self, scale_set: ScaleSetRow, waiting: list[InstanceRow]
    ) -> tuple[list[InstanceRow], dict[str, str] | None]:
        """Return the waiting instances that get a machine, and why not all do."""
        return allocation.grant(self.state, self.spot_capacity, scale_set, waiting, self.now())

    def _boot(self) -> None:
        """Boot what has room and never ran."""
        for scale_set, instance in self._agenda.fresh():
            self.state.change(instance, booted=True)
            if self.settings.hollow:
                continue
            machine = MachineSpec(
                folder=self.folder(instance),
                user_data=base64.b64decode(scale_set.custom_data) or b"#cloud-config\n",
                metadata_url=self.metadata_url(instance),
                host_name=scale_set.computer_name(instance),
                images=self.settings.images,
                proxied=self.settings.proxies,
            )
            self._processes.boot(machine)

    async def _kill_doomed(self) -> list[Machine]:
        doomed = self._agenda.doomed()
        if self.settings.hollow:
            return doomed
        kills = [
            asyncio.to_thread(
                processes.kill, self.folder(i), self.metadata_url(i), wipe=power.wipes(s, i)
            )
            for s, i in doomed
        ]
        await asyncio.gather(*kills)
        return doomed

    def _finish(self, now: float, killed: list[Machine]) -> None:
        """Forget what was killed, and end the operations that have all they waited for."""
        for _, instance in killed:
            self._forget(self.state.now(instance))
        for operation in [o for o in self._due(now) if self._is_done(o)]:
            self.state.end(operation, now)
            self._settle(operation)
        for operation in self._agenda.outdated_operations(now):
            self.state.remove(operation)

    def _is_done(self, operation: OperationRow) -> bool:
        targets = self._sets(operation.target)
        if operation.kind == "delete_instances":
            return not any(set(operation.instance_ids) & set(s.instances) for s in targets)
        if operation.kind in ALLOCATING:
            surplus = [i for s in targets for i in s.instances.values() if i.doom == "surplus"]
            return not surplus and not any(self._waiting(s, operation) for s in targets)
        return not any(s.instances for s in targets)

    def _settle(self, operation: OperationRow) -> None:
        if operation.kind in DELETING:
            for scale_set in self._sets(operation.target):
                self.state.remove(scale_set)
        if operation.kind == "delete_group":
            self._empty(operation.target)

    def _empty(self, group: str) -> None:
        """Delete a resource group with the resources that no process stands for."""
        for resource in list(self.state.resources.values()):
            if resource.key.startswith(group + "/"):
                self.state.remove(resource)
        if row := self.state.groups.get(group):
            self.state.remove(row)

    def doom(self, instance: InstanceRow, why: str) -> None:
        """Have an instance killed, unless it is to be killed already."""
        if not self.state.now(instance).doom:
            self.state.change(instance, doom=why)

    def _doom(self, scale_set: ScaleSetRow, operation: OperationRow) -> None:
        """Have what is deleted killed."""
        for instance in scale_set.instances.values():
            if operation.kind != "delete_instances" or instance.key in operation.instance_ids:
                self.doom(instance, "deleted")

    def _forget(self, instance: InstanceRow) -> None:
        """Drop a killed instance as its scale set's eviction policy says."""
        scale_set = self.state.scale_sets[instance.set_key]
        alive: dict[str, Any] = {"doom": "", "eviction": None}
        if power.settle(self.state, instance):
            return
        if instance.doom == "evicted" and instance.eviction and instance.eviction.lingers:
            self.state.change(instance, **alive)
            return
        if instance.doom == "evicted" and scale_set.profile.get("evictionPolicy") != "Delete":
            self.state.change(instance, **alive, phase="deallocated")
            return
        self.state.remove(instance)
        if instance.doom != "surplus":
            self.state.resize(scale_set, -1)


def staying(scale_set: ScaleSetRow) -> list[InstanceRow]:
    """Return the instances that count towards the capacity: all but those scaled in."""
    return [i for i in scale_set.instances.values() if i.doom != "surplus"]


def _surplus(scale_set: ScaleSetRow) -> list[InstanceRow]:
    """Return the instances beyond the capacity: doomed ones, unallocated ones, then the newest."""
    newest, going = staying(scale_set)[::-1], ("evicted", "deleted")
    leaving = sorted(newest, key=lambda i: (i.doom not in going, i.phase != "creating"))
    return leaving[: max(len(newest) - scale_set.capacity, 0)]


def _provisioning_state(scale_set: ScaleSetRow, under_way: list[OperationRow]) -> str:
    """Return what is going on with a scale set, or how it ended, from all that concerns it."""
    kinds = [operation.kind for operation in under_way if not operation.alone]
    if any(kind in DELETING for kind in kinds):
        return "Deleting"
    if kinds:
        return "Creating" if scale_set.provisioning_state == "Creating" else "Updating"
    return "Failed" if scale_set.error else "Succeeded"
