"""What Azure does by itself to jobs with budgets: in the fake, and in the emulator.

Names are those of scale sets. The emulator is in this process, on the clock of the lives; the
service talks to it with the real SDK over TLS, and what is done to it goes by its control routes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, CloudProvider
from tests.clock import Clock
from tests.contract.emulated import sign_in
from tests.emulated.inside import Inside, emulator_inside, over_tls
from tests.world import SPOT

_SETS = "/virtualMachineScaleSets"
_CORES = 1_000_000  # more than all lives together ask for


@dataclass
class ControlledFake:
    """That of the fake, which bills every machine from its order on."""

    cloud: FakeCloud
    sold_out: bool = False

    async def takes(self, create: timedelta, delete: timedelta, lag: timedelta) -> None:
        cloud = self.cloud
        cloud.create_time, cloud.delete_time, cloud.visible_after = create, delete, lag

    async def fail(self, calls: int) -> None:
        self.cloud.fail_next = [CloudError("Azure does not answer")] * calls

    async def change_capacity(self) -> None:
        self.sold_out = not self.sold_out
        self.cloud.sold_out_late ^= {SPOT}

    async def evict(self, name: str, instance: str) -> None:
        self.cloud.evict(name, instance)

    async def pass_time(self) -> None:
        """Do nothing: the fake reads the clock itself."""

    def machines(self) -> dict[str, set[str]]:
        return {name: self.cloud.machines(name) for name in sorted(self.cloud.billed_names())}

    def bill(self, machine_cost: Decimal) -> list[tuple[str, Decimal]]:
        return [(name, len(vm_ids) * machine_cost) for name, vm_ids in self.machines().items()]


@dataclass
class ControlledEmulator:
    """That of the emulator. A machine that is given is billed from its order on."""

    cloud: CloudProvider
    inside: Inside
    sold_out: bool = False
    lag: timedelta = timedelta(0)
    _known: set[str] = field(default_factory=set)
    _ordered: dict[tuple[str, str], Decimal] = field(default_factory=dict)

    async def takes(self, create: timedelta, delete: timedelta, lag: timedelta) -> None:
        fabric, self.lag = self.inside.fabric, lag
        fabric.settings = replace(
            fabric.settings,
            create_seconds=create.total_seconds(),
            delete_seconds=delete.total_seconds(),
        )

    async def fail(self, calls: int) -> None:
        (await self.inside.metadata.delete("/_emulator/faults")).raise_for_status()
        if calls:
            await self._tell("faults", kind="error", path=_SETS, count=calls)

    async def change_capacity(self) -> None:
        self.sold_out = not self.sold_out
        pool_fields = {"region": SPOT.region, "vm_size": SPOT.vm_size}
        await self._tell("capacity", **pool_fields, available=0 if self.sold_out else None)

    async def evict(self, name: str, instance: str) -> None:
        await self._tell("evict", scale_set=name, instance_id=instance, notice=False)

    async def pass_time(self) -> None:
        """Hide new sets for the lag."""
        await self.inside.fabric.step()
        sets = self.inside.fabric.state.scale_sets.values()
        for name in sorted({s.name for s in sets} - self._known):
            self._known.add(name)
            if seconds := self.lag.total_seconds():
                fault = {"status": 404, "code": "ResourceNotFound", "path": f"{_SETS}/{name}"}
                await self._tell("faults", kind="error", method="GET", seconds=seconds, **fault)

    def machines(self) -> dict[str, set[str]]:
        vm_ids: dict[str, set[str]] = {}
        for scale_set, instance in self.inside.fabric.instances():
            if instance.phase == "allocated" and not instance.doom:
                vm_ids.setdefault(scale_set.name, set()).add(instance.instance_id)
        return {name: vm_ids[name] for name in sorted(vm_ids)}

    def bill(self, machine_cost: Decimal) -> list[tuple[str, Decimal]]:
        """Return the cost of machines that were allocated."""
        before, self._ordered, charges = self._ordered, {}, []
        for scale_set, instance in self.inside.fabric.instances():
            key = (scale_set.name, instance.vm_id)
            amount = before.get(key, Decimal(0)) + machine_cost
            if instance.phase == "creating":
                self._ordered[key] = amount
            else:
                charges.append((scale_set.name, amount))
        return charges

    async def _tell(self, action: str, **members: Any) -> None:  # noqa: ANN401 - JSON
        response = await self.inside.metadata.post(f"/_emulator/{action}", json=members)
        response.raise_for_status()


ControlledCloud = ControlledFake | ControlledEmulator


@asynccontextmanager
async def emulated(folder: Path, clock: Clock) -> AsyncIterator[ControlledEmulator]:
    """Yield an emulator whose machines run nothing, and the adapter on it."""
    async with (
        emulator_inside(folder, clock, spot_quota=_CORES) as inside,
        over_tls(inside) as metadata,
    ):
        await inside.make_group()
        cloud = sign_in(metadata, "test")
        try:
            yield ControlledEmulator(cloud=cloud, inside=inside)
        finally:
            await cloud.close()
