"""Which instances get a machine when there are fewer than requested.

What Azure does with a scale set that is short of room is not written anywhere that we found:
field reports have both the whole allocation failing and some of its instances coming up with
the rest of them failed. So a share of allocations (`partial` of the capacity entry) gets what there
is, drawn by the name of the scale set and of the instances; the others get nothing.
"""

import random

from emulator.capacity.spot_capacity import CapacityPool, PoolKey, SpotCapacity
from emulator.core.errors import refusal, sku_not_available
from emulator.core.state import EmulatorState, InstanceRow, ScaleSetRow

LEAVING = ("evicted", "deleted", "surplus", "deallocate")  # dooms that free a machine
Verdict = tuple[list[InstanceRow], dict[str, str] | None]  # who gets one, and why not all do


def grant(
    state: EmulatorState,
    spot_capacity: SpotCapacity,
    scale_set: ScaleSetRow,
    waiting: list[InstanceRow],
    now: float,
) -> Verdict:
    """Return the instances that get a machine. `/_emulator/capacity` is one more limit."""
    key = f"{scale_set.location}/{scale_set.vm_size}".lower()
    remaining = state.globals.capacity.get(key)
    if remaining is not None and remaining < len(waiting):
        return [], refusal("AllocationFailed")
    fitting, short = _fitting(state, spot_capacity, scale_set, waiting, now)
    if short and not _partial(short, scale_set, waiting):
        fitting = []
    if remaining is not None:
        capacity = state.globals.capacity | {key: remaining - len(fitting)}
        state.change(state.globals, capacity=capacity)
    zonal = "Zonal" if scale_set.model.get("zones") else ""
    return fitting, refusal(f"{zonal}AllocationFailed") if short else None


def room(state: EmulatorState, spot_capacity: SpotCapacity, pool: CapacityPool, now: float) -> int:
    """Return how many more machines a pool has, now and in the future that Azure knows."""
    used = staying = 0
    for scale_set in state.scale_sets.values():
        for instance in scale_set.instances.values():
            if instance.phase == "allocated" and spot_capacity.pool(scale_set, instance) == pool:
                used += 1
                staying += not leaving(instance)
    later = pool.lowest(now, now + spot_capacity.foresight)
    return max(min(pool.now(now) - used, later - staying), 0)


def leaving(instance: InstanceRow) -> bool:
    """Whether its machine will be free soon."""
    return instance.eviction is not None or instance.doom in LEAVING


def refuse_if_sold_out(spot_capacity: SpotCapacity, scale_set: ScaleSetRow, now: float) -> None:
    """Raise ArmError if there is no machine at all for the Spot instances that are to be added."""
    if not scale_set.spot or scale_set.capacity <= len(scale_set.instances):
        return
    pool = spot_capacity.pool(scale_set, InstanceRow("", "", "", "", "", now))
    if pool and pool.now(now) == 0:
        raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def _fitting(
    state: EmulatorState,
    spot_capacity: SpotCapacity,
    scale_set: ScaleSetRow,
    waiting: list[InstanceRow],
    now: float,
) -> tuple[list[InstanceRow], CapacityPool | None]:
    """Those who find room in their pools, and a pool that has too little."""
    rooms: dict[PoolKey, int] = {}
    fitting, short = [], None
    for instance in waiting:
        pool = spot_capacity.pool(scale_set, instance)
        if pool and pool.key not in rooms:
            rooms[pool.key] = room(state, spot_capacity, pool, now)
        if pool is None or rooms[pool.key] > 0:
            fitting.append(instance)
        else:
            short = pool
        if pool:
            rooms[pool.key] -= 1
    return fitting, short


def _partial(short: CapacityPool, scale_set: ScaleSetRow, waiting: list[InstanceRow]) -> bool:
    names = f"{short.entry.option('seed')}/{scale_set.name}/{waiting[0].instance_id}"
    share = float(short.entry.option("partial"))
    return random.Random(names).random() < share  # noqa: S311 - simulation, no secret
