"""Which instances of a scale set come and go when its capacity changes."""

from emulator.state import Instance, ScaleSet

GOING = ("evicted", "deleted")  # dooms


def staying(scale_set: ScaleSet) -> list[Instance]:
    """The instances that the capacity counts: what is evicted or deleted takes its share along."""
    return [i for i in scale_set.instances.values() if i.doom != "surplus"]


def surplus(scale_set: ScaleSet) -> list[Instance]:
    """The instances beyond the capacity."""
    living = staying(scale_set)
    left = len(living) - scale_set.capacity
    if left <= 0:
        return []
    return _order(scale_set, living)[:left]


def _order(scale_set: ScaleSet, living: list[Instance]) -> list[Instance]:
    """As they leave: the doomed, those never allocated, then by the policy (else the newest)."""
    policy = scale_set.model["properties"].get("scaleInPolicy") or {}
    oldest = (policy.get("rules") or ["Default"])[0] == "OldestVM"
    newest = living if oldest else living[::-1]
    return sorted(newest, key=lambda i: (i.doom not in GOING, i.phase != "creating"))
