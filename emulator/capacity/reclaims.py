"""Azure takes Spot machines back: in bursts when capacity falls, and where the price is too high.

Azure knows for some seconds ahead what it will want back, a little longer than the notice that
it gives: so evictions end when the machines are wanted, whenever somebody looks. Some come
without notice; whose, and whom they take, follows from the VMs' names.
"""

import random

from emulator.capacity.allocation import leaving
from emulator.capacity.spot_capacity import CapacityPool, PoolKey
from emulator.compute import evictions
from emulator.core.state import ANY_PRICE, InstanceRow, ScaleSetRow
from emulator.fabric import Fabric

Machine = tuple[ScaleSetRow, InstanceRow]
_MachinesByPool = dict[PoolKey, tuple[CapacityPool, list[Machine]]]


def begin_due_evictions(fabric: Fabric, now: float) -> bool:
    """Begin every eviction that is due; a chore."""
    if not fabric.spot_capacity.entries:
        return False
    staying: _MachinesByPool = {}
    for scale_set in fabric.state.scale_sets.values():
        if scale_set.spot:
            _gather(fabric, scale_set, staying)
    begun = [_make_room(fabric, pool, machines, now) for pool, machines in staying.values()]
    return any([*begun, _hold_to_max_price(fabric, now)])


def _gather(fabric: Fabric, scale_set: ScaleSetRow, staying: _MachinesByPool) -> None:
    """Add the Spot instances that have machines and are to keep them to their pools."""
    pools: dict[str, CapacityPool | None] = {}  # by zone
    for instance in scale_set.instances.values():
        if instance.phase != "allocated" or leaving(instance):
            continue
        if instance.zone not in pools:
            pools[instance.zone] = fabric.spot_capacity.pool(scale_set, instance)
        if pool := pools[instance.zone]:
            staying.setdefault(pool.key, (pool, []))[1].append((scale_set, instance))


def _make_room(fabric: Fabric, pool: CapacityPool, machines: list[Machine], now: float) -> bool:
    """Evict as many as there will be no machines for, each when it is wanted back."""
    horizon = now + fabric.spot_capacity.foresight
    if len(machines) <= pool.lowest(now, horizon):
        return False
    victims = _victims(pool, machines)
    for wanted_at, count in pool.trace.steps(now, horizon):
        while len(victims) > count:
            scale_set, instance = victims.pop(0)
            at = max(wanted_at, now + fabric.settings.notice_seconds)
            _evict(fabric, pool, (scale_set, instance), now, at)
    return True


def _victims(pool: CapacityPool, machines: list[Machine]) -> list[Machine]:
    if pool.entry.option("victims") == "newest":
        return sorted(machines, key=lambda m: -m[1].created_at)
    return sorted(machines, key=lambda m: _draw(pool, m[0], m[1], "victim"))


def _evict(fabric: Fabric, pool: CapacityPool, machine: Machine, now: float, at: float) -> None:
    if _draw(pool, *machine, "notice") < pool.entry.option("without_notice"):
        evictions.strike(fabric.state, machine[1], at)
    else:
        evictions.announce(fabric.state, machine[1], now, at - now)


def _hold_to_max_price(fabric: Fabric, now: float) -> bool:
    """Evict the Spot instances whose maximum price is below the price."""
    begun = False
    for scale_set in fabric.state.scale_sets.values():
        bid = scale_set.max_price
        if bid == ANY_PRICE or not scale_set.spot:
            continue
        price = fabric.spot_capacity.spot_price(scale_set.location, scale_set.vm_size, now)
        if price is not None and bid < price:
            for instance in scale_set.instances.values():
                if instance.phase == "allocated" and not leaving(instance):
                    seconds = fabric.settings.notice_seconds
                    evictions.announce(fabric.state, instance, now, seconds)
                    begun = True
    return begun


def _draw(pool: CapacityPool, scale_set: ScaleSetRow, instance: InstanceRow, purpose: str) -> float:
    seed = f"{pool.entry.option('seed')}/{purpose}/{scale_set.vm_name(instance)}"
    return random.Random(seed).random()  # noqa: S311 - simulation, no secret
