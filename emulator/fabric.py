"""What happens as time passes: allocation, boot, eviction, deletion.

Requests only write down what is wanted and by when. The fabric looks at all of it, again and
again, and does what is due, so a restart in between loses and doubles nothing.
"""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator import processes, state
from emulator.errors import ALLOCATION_FAILED
from emulator.processes import Machine, Processes
from emulator.state import Instance, Operation, ScaleSet

LONGEST_SLEEP = 1.0  # seconds between two looks
SHORTEST_SLEEP = 0.02
OPERATIONS_KEPT = 3600.0  # seconds after their end; then polling answers NotFound
Found = tuple[ScaleSet, Instance]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this emulator behaves."""

    folder: Path
    images: dict[str, Any] = field(default_factory=dict)
    create_seconds: float = 3.0
    delete_seconds: float = 2.0
    notice_seconds: float = 30.0
    spot_quota: int = 1000  # cores per region
    page_size: int = 100
    address_prefix: str = "127.77"  # of VM addresses; empty where only 127.0.0.1 works


class Fabric:
    """The state, and the loop that carries it forward."""

    def __init__(self, settings: Settings, metadata_url: str, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.now = clock
        self._metadata_url = metadata_url
        self._file = settings.folder / "state.json"
        self.state = state.load(self._file)
        self._processes = Processes()
        self._wake = asyncio.Event()
        self._stepping = asyncio.Lock()

    def changed(self) -> None:
        """Write the state down and look again soon; called before any request is answered."""
        state.save(self.state, self._file)
        self._wake.set()

    async def run(self) -> None:
        """Carry the state forward until cancelled."""
        while True:
            await self.step()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._sleep())
            self._wake.clear()

    async def step(self) -> None:
        """Do everything that is due now."""
        async with self._stepping:
            if self._begin(self.now()):
                state.save(self.state, self._file)
            self._processes.reap()
            booted = self._boot()
            killed = await self._kill_doomed()
            if self._finish(self.now(), killed) or booted:
                state.save(self.state, self._file)

    def folder(self, instance: Instance) -> Path:
        """Where the VM's disk and console lie."""
        return self.settings.folder / "vms" / instance.vm_id

    def metadata_url(self, instance: Instance) -> str:
        """Where the VM's processes find their metadata service."""
        return f"{self._metadata_url}/vm/{instance.token}"

    def running(self, instance: Instance) -> bool:
        """Whether the VM is up; one that was never booted is not."""
        return instance.booted and processes.alive(self.folder(instance))

    def find(self, wanted: Callable[[Instance], bool]) -> Found | None:
        """The first instance that fits, with its scale set."""
        return next(((s, i) for s, i in self.instances() if wanted(i)), None)

    def instances(self) -> Iterator[Found]:
        """Every instance with its scale set."""
        for scale_set in list(self.state.scale_sets.values()):
            for instance in list(scale_set.instances.values()):
                yield scale_set, instance

    def operations(self, target: str, kind: str) -> list[Operation]:
        """The unfinished operations of one kind on one resource."""
        unfinished = (o for o in self.state.operations.values() if o.status == "InProgress")
        return [o for o in unfinished if (o.target, o.kind) == (target, kind)]

    def next_address(self) -> str:
        """An address that no VM had before."""
        number, prefix = self.state.next_address, self.settings.address_prefix
        self.state.next_address += 1
        return f"{prefix}.{number // 250 % 250}.{number % 250 + 1}" if prefix else "127.0.0.1"

    def _sleep(self) -> float:
        due = [o.due_at for o in self.state.operations.values() if o.status == "InProgress"]
        due += [i.eviction.not_before for _, i in self.instances() if i.eviction]
        soonest = min(due, default=self.now() + LONGEST_SLEEP) - self.now()
        return min(max(soonest, SHORTEST_SLEEP), LONGEST_SLEEP)

    def _begin(self, now: float) -> bool:
        """Turn what is due into allocated and doomed instances; say whether anything changed."""
        due = [o for o in self.state.operations.values() if _due(o, now)]
        for operation in due:
            self._begin_operation(operation, now)
        evicted = [i for _, i in self.instances() if i.eviction and i.eviction.due(now)]
        for instance in evicted:
            instance.doom = instance.doom or "evicted"
        return bool(due or evicted)

    def _begin_operation(self, operation: Operation, now: float) -> None:
        for scale_set in self._targets(operation):
            if operation.kind == "put":
                self._allocate(scale_set, operation, now)
                continue
            if operation.refusal:
                _fail(scale_set, operation, operation.refusal, now)
                continue
            for instance in scale_set.instances.values():
                named = operation.kind != "delete_instances"
                if named or instance.instance_id in operation.instance_ids:
                    instance.doom = instance.doom or "deleted"

    def _targets(self, operation: Operation) -> list[ScaleSet]:
        if operation.kind == "delete_group":
            inside = operation.target + "/"
            return [s for s in self.state.scale_sets.values() if s.key.startswith(inside)]
        found = self.state.scale_sets.get(operation.target)
        return [found] if found else []

    def _allocate(self, scale_set: ScaleSet, operation: Operation, now: float) -> None:
        """Give room to the instances being created, to all or to none; doom surplus ones."""
        waiting = [i for i in scale_set.instances.values() if i.phase == "creating" and not i.doom]
        place = f"{scale_set.location}/{scale_set.vm_size}".lower()
        left = self.state.capacity.get(place)
        short = left is not None and left < len(waiting)
        if refusal := operation.refusal or (ALLOCATION_FAILED if short else None):
            for instance in waiting[: operation.granted]:
                instance.phase = "allocated"
            for instance in waiting[operation.granted :]:
                del scale_set.instances[instance.instance_id]
            _fail(scale_set, operation, refusal, now)
            return
        if left is not None:
            self.state.capacity[place] = left - len(waiting)
        for instance in waiting:
            instance.phase = "allocated"
        living = [i for i in scale_set.instances.values() if not i.doom]
        for instance in living[scale_set.capacity :]:
            instance.doom = "surplus"

    def _boot(self) -> bool:
        """Boot what has room and never ran."""
        fresh = [
            (s, i)
            for s, i in self.instances()
            if i.phase == "allocated" and not i.booted and not i.doom
        ]
        for scale_set, instance in fresh:
            machine = Machine(
                folder=self.folder(instance),
                user_data=base64.b64decode(scale_set.custom_data) or b"#cloud-config\n",
                metadata_url=self.metadata_url(instance),
                images=self.settings.images,
            )
            self._processes.boot(machine)
            instance.booted = True
        return bool(fresh)

    async def _kill_doomed(self) -> list[Found]:
        doomed = [(s, i) for s, i in self.instances() if i.doom]
        kills = [
            asyncio.to_thread(processes.kill, self.folder(i), self.metadata_url(i))
            for _, i in doomed
        ]
        await asyncio.gather(*kills)
        return doomed

    def _finish(self, now: float, killed: list[Found]) -> bool:
        """Forget what was killed, and end the operations that have all they waited for."""
        for scale_set, instance in killed:
            _forget(scale_set, instance)
        ended = [o for o in self.state.operations.values() if _due(o, now) and self._done(o)]
        for operation in ended:
            operation.end(now)
            self._settle(operation)
        old = [o.id for o in self.state.operations.values() if _stale(o, now)]
        for name in old:
            del self.state.operations[name]
        return bool(killed or ended or old)

    def _done(self, operation: Operation) -> bool:
        targets = self._targets(operation)
        if operation.kind == "delete_instances":
            return not any(set(operation.instance_ids) & set(s.instances) for s in targets)
        if operation.kind == "put":
            living = [i for s in targets for i in s.instances.values()]
            return not any(i.phase == "creating" or i.doom == "surplus" for i in living)
        return not any(s.instances for s in targets)

    def _settle(self, operation: Operation) -> None:
        for scale_set in self._targets(operation):
            if operation.kind in ("delete", "delete_group"):
                del self.state.scale_sets[scale_set.key]
            elif scale_set.provisioning_state != "Deleting":
                scale_set.provisioning_state = "Succeeded"
        if operation.kind == "delete_group":
            self.state.groups.pop(operation.target, None)


def _due(operation: Operation, now: float) -> bool:
    return operation.status == "InProgress" and now >= operation.due_at


def _stale(operation: Operation, now: float) -> bool:
    return operation.ended_at is not None and now > operation.ended_at + OPERATIONS_KEPT


def _fail(scale_set: ScaleSet, operation: Operation, why: dict[str, str], now: float) -> None:
    scale_set.error, scale_set.provisioning_state = why, "Failed"
    operation.end(now, why)


def _forget(scale_set: ScaleSet, instance: Instance) -> None:
    """Drop a killed instance as its scale set's eviction policy says."""
    if instance.doom == "evicted" and instance.eviction and instance.eviction.lingers:
        instance.doom, instance.eviction = "", None
        return
    if instance.doom == "evicted" and scale_set.profile.get("evictionPolicy") != "Delete":
        instance.phase, instance.doom, instance.eviction = "deallocated", "", None
        return
    scale_set.instances.pop(instance.instance_id, None)
    if instance.doom != "surplus":
        scale_set.capacity = max(scale_set.capacity - 1, 0)
