"""The two clouds of the contract suite, fake and emulated, and Azure's own actions in them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from service.cloud.cloud_init import render
from service.cloud.fake import FakeCloud
from service.cloud.provider import (
    ATTEMPT_TAG,
    OWNER_TAG,
    CloudError,
    CloudProvider,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)
from service.domain.cloud.fleet import (
    Offering,
    ScaleSet,
    ScaleSetPhase,
    ScaleSetSpec,
    SpotCores,
    TaggedResource,
)
from service.domain.states import CapacityType
from tests.clock import Clock
from tests.contract.emulated import IMAGE, sign_in
from tests.emulated.process import GROUP, SUBSCRIPTION, Emulator
from tests.waiting import on, until

SPOT = Offering(
    region="eastus", vm_size="Standard_NC24ads_A100_v4", capacity_type=CapacityType.SPOT
)
SCARCE = replace(SPOT, region="westus3")  # accepted, but the allocation fails
QUIET = replace(SPOT, region="southcentralus")  # no other test creates instances there
# An example of a resource that is no scale set
UNTRACKED_KIND = "Microsoft.Network/networkSecurityGroups"
NOT_SOLD = replace(SPOT, region="northcentralus")  # refused immediately
QUOTA = (
    "Operation could not be completed as it results in exceeding approved LowPriorityCores quota."
)


@dataclass(frozen=True, kw_only=True)
class World:
    """A cloud, functions for Azure's own actions in it, and a wait function for its clock."""

    cloud: CloudProvider
    neighbour: CloudProvider  # the same cloud for another deployment
    evict: Callable[..., Awaitable[None]]  # (scale set, instance id, lingers=False)
    restore: Callable[[str], Awaitable[None]]
    arm: Callable[..., Awaitable[None]]  # (kind of fault, its members)
    clear: Callable[[], Awaitable[None]]
    leave: Callable[..., Awaitable[None]]  # (name, owned): adds a tagged resource, no scale set
    until: Callable[..., Awaitable[ScaleSet]]
    print_to_console: Callable[[str, str, bytes], None]  # (scale set, instance id, text)

    async def wait_until_seen(self, name: str, phase: ScaleSetPhase | None = None) -> ScaleSet:
        """Wait until the scale set is visible (in ``phase``), and return it."""
        return await self.until(
            partial(_look, self.cloud, name),
            lambda scale_set: scale_set is not None and phase in {None, scale_set.phase},
        )

    async def wait_until_gone(self, name: str) -> None:
        """Wait until the scale set does not exist."""
        await self.until(partial(_look, self.cloud, name), lambda scale_set: scale_set is None)


async def fake_world(clock: Clock) -> AsyncIterator[World]:
    """Yield the fake cloud."""
    cloud = FakeCloud(now=clock, sold_out={NOT_SOLD}, sold_out_late={SCARCE})
    cloud.spot_quotas[QUIET.region] = SpotCores(limit=10_000, used=0)

    async def evict(name: str, instance_id: str, *, lingers: bool = False) -> None:
        cloud.evict(name, instance_id, lingers=lingers)

    async def restore(name: str) -> None:
        cloud.restore(name)

    async def arm(kind: str, **members: Any) -> None:  # noqa: ANN401 - a fault's members
        _arm(cloud, kind, members)

    async def clear() -> None:
        cloud.delete_time = timedelta(minutes=2)
        cloud.fail_next.clear()
        cloud.sold_out_late.intersection_update({SCARCE})
        cloud.partial_capacity.clear()

    async def leave(name: str, *, owned: bool) -> None:
        tags = {OWNER_TAG: cloud.owner if owned else "neighbour"}
        cloud.untracked.append(
            TaggedResource(kind=UNTRACKED_KIND, name=name, region="eastus", tags=tags)
        )

    def print_to_console(name: str, instance_id: str, text: bytes) -> None:
        cloud.serial_logs[f"{name}_{instance_id}"] = text

    yield World(
        print_to_console=print_to_console,
        cloud=cloud,
        neighbour=replace(cloud, owner="neighbour"),
        evict=evict,
        restore=restore,
        arm=arm,
        clear=clear,
        leave=leave,
        until=partial(until, wait=on(clock), interval=5, deadline=600),
    )


async def azure_world(emulator: Emulator) -> AsyncIterator[World]:
    """Yield the real adapter with the emulator."""
    full = {"region": SCARCE.region, "vm_size": SCARCE.vm_size, "available": 0}
    emulator.admin("capacity", full).raise_for_status()

    async def evict(name: str, instance_id: str, *, lingers: bool = False) -> None:
        target = {"scale_set": name, "instance_id": instance_id}
        body = {**target, "notice": False, "lingers": lingers}
        emulator.admin("evict", body).raise_for_status()

    async def restore(name: str) -> None:
        emulator.admin("restore", {"scale_set": name}).raise_for_status()

    async def arm(kind: str, **members: object) -> None:
        emulator.admin("faults", {"kind": kind, **members}).raise_for_status()

    async def clear() -> None:
        emulator.clear_faults()

    owner = f"owner-{uuid4().hex}"

    async def leave(name: str, *, owned: bool) -> None:
        body = {"location": "eastus", "tags": {OWNER_TAG: owner if owned else "neighbour"}}
        with emulator.signed_in() as client:
            path = (
                f"resourceGroups/{GROUP}/providers/{UNTRACKED_KIND}/{name}?api-version=2024-05-01"
            )
            client.put(f"/subscriptions/{SUBSCRIPTION}/{path}", json=body).raise_for_status()

    def print_to_console(name: str, instance_id: str, text: bytes) -> None:
        machine = f"{name}_{instance_id}"
        (folder,) = (m["folder"] for m in emulator.virtual_machines() if m["name"] == machine)
        with (Path(folder) / "console.log").open("ab") as console:
            console.write(text)

    yield World(
        print_to_console=print_to_console,
        cloud=sign_in(emulator, owner),
        neighbour=sign_in(emulator, "neighbour"),
        evict=evict,
        restore=restore,
        arm=arm,
        clear=clear,
        leave=leave,
        until=partial(until, interval=0.05),
    )


def a_spec(offering: Offering = SPOT) -> ScaleSetSpec:
    """Return the spec of a scale set of three instances with a unique name."""
    return ScaleSetSpec(
        name=f"rk-{uuid4().hex[:26]}",
        offering=offering,
        instance_count=3,
        cloud_init=render("{}", IMAGE, "cpu"),
        tags={ATTEMPT_TAG: "att-1"},
    )


def _arm(cloud: FakeCloud, kind: str, members: dict[str, Any]) -> None:
    """Apply an order for the emulator to the fake."""
    match kind, members.get("when"):
        case "drop", "after":
            cloud.lose_answers += 1
        case "allocation_failed", _:
            cloud.late_code = members["code"]
            cloud.sold_out_late.add(SPOT)
        case (("partial" | "failed_instances"), _):
            cloud.partial_capacity[SPOT] = members["instances"]
            cloud.lists_failed_instances = kind == "failed_instances"
            cloud.late_code = members.get("code", cloud.late_code)
        case "stragglers", _:
            cloud.stragglers[SPOT] = members["instances"]
            cloud.straggler_delay = timedelta(minutes=5)
        case "delete_fails", _:
            cloud.failing_deletes += members["count"]
        case "delete_hangs", _:
            cloud.delete_time = timedelta(days=1)
        case _:
            cloud.fail_next.append(_refusal(kind, members))


def _refusal(kind: str, members: dict[str, Any]) -> CloudError:
    """Return the exception that the next call raises."""
    wait = float(members.get("retry_after", 0))
    return {
        "throttle": Throttled("too many", "OperationNotAllowed", wait),
        "error": CloudError("It is not well."),
        "drop": CloudError("The connection broke."),
        "sku_not_available": InsufficientCapacity("sold out", "SkuNotAvailable"),
        "quota": InsufficientCapacity(QUOTA, "OperationNotAllowed"),
        "policy": Misconfigured(f"Denied by {members.get('policy')}", "RequestDisallowedByPolicy"),
    }[kind]


async def _look(cloud: CloudProvider, name: str) -> ScaleSet | None:
    try:
        return await cloud.get(name)
    except ScaleSetNotFound:
        return None
