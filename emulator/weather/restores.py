"""Try and restore: Azure brings back what it evicted for want of capacity, once there is some.

Only where the scale set's spotRestorePolicy says so, for as long as its restoreTimeout says.
What was deleted comes back under a new id; what was kept, deallocated, is the same VM again.
"""

from emulator import operations, scale_sets
from emulator.errors import ArmError
from emulator.fabric import Fabric
from emulator.state import Instance, ScaleSet
from emulator.weather.allocation import grant, leaving


def carry_on(fabric: Fabric, now: float) -> bool:
    """Restore whatever there is room for; a chore."""
    waiting = [s for s in fabric.state.scale_sets.values() if s.restorable]
    for scale_set in waiting:
        _restore(fabric, scale_set, now)
    return bool(waiting)


def _restore(fabric: Fabric, scale_set: ScaleSet, now: float) -> None:
    waiting = scale_set.restorable
    for late in [name for name, until in waiting.items() if until < now]:
        del waiting[late]
    for name in list(waiting):
        evicted = scale_set.instances.get(name)
        if evicted and evicted.phase == "allocated" and not leaving(evicted):
            del waiting[name]  # its owner was faster
            continue
        if evicted and evicted.phase != "deallocated":
            continue  # its notice still runs
        if scale_set.provisioning_state == "Deleting":
            break
        if not (
            _start(fabric, scale_set, evicted, now) if evicted else _add(fabric, scale_set, now)
        ):
            break
        del waiting[name]


def _start(fabric: Fabric, scale_set: ScaleSet, evicted: Instance, now: float) -> bool:
    if not _granted(fabric, scale_set, evicted, now):
        return False
    evicted.phase, evicted.booted = "allocated", False
    seconds = fabric.settings.create_seconds
    ids = (evicted.instance_id,)
    operations.begin(fabric, "restore", scale_set, seconds=seconds, instance_ids=ids)
    return True


def _add(fabric: Fabric, scale_set: ScaleSet, now: float) -> bool:
    """One more instance, unless the quota is used up by now; it has its machine at once."""
    zones = scale_set.model.get("zones") or [""]
    zone = str(zones[scale_set.next_instance % len(zones)])  # the one that it will have
    try:
        scale_sets.check_room_in_quota(fabric, scale_set, 1)
    except ArmError:
        return False
    if not _granted(fabric, scale_set, Instance("", "", "", "", now, zone=zone), now):
        return False
    for name in scale_sets.grow(fabric, scale_set, 1, "restore"):
        scale_set.instances[name].phase = "allocated"
    return True


def _granted(fabric: Fabric, scale_set: ScaleSet, instance: Instance, now: float) -> bool:
    granted, _ = grant(fabric.state, fabric.weather, scale_set, [instance], now)
    return bool(granted)
