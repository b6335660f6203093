"""Which instances of a scale set come and go when its capacity changes."""

from emulator.core.state import InstanceRow, ScaleSetRow

GOING = ("evicted", "deleted")  # dooms


def staying(scale_set: ScaleSetRow) -> list[InstanceRow]:
    """Return the instances that count towards the capacity: all but those scaled in."""
    return [i for i in scale_set.instances.values() if i.doom != "surplus"]


def surplus(scale_set: ScaleSetRow) -> list[InstanceRow]:
    """Return the instances beyond the capacity: doomed ones, unallocated ones, then the newest."""
    newest = staying(scale_set)[::-1]
    leaving = sorted(newest, key=lambda i: (i.doom not in GOING, i.phase != "creating"))
    return leaving[: max(len(newest) - scale_set.capacity, 0)]
