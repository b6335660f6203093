"""Which instances of a scale set come and go when its capacity changes."""

from emulator.core.state import Instance, ScaleSet

GOING = ("evicted", "deleted")  # dooms


def staying(scale_set: ScaleSet) -> list[Instance]:
    """The instances that the capacity counts: what is evicted or deleted takes its share along."""
    return [i for i in scale_set.instances.values() if i.doom != "surplus"]


def surplus(scale_set: ScaleSet) -> list[Instance]:
    """The instances beyond the capacity: the doomed, those never allocated, then the newest."""
    newest = staying(scale_set)[::-1]
    leaving = sorted(newest, key=lambda i: (i.doom not in GOING, i.phase != "creating"))
    return leaving[: max(len(newest) - scale_set.capacity, 0)]
