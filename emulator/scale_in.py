"""Which instances of a scale set come and go when its capacity changes."""

from typing import Any

from emulator.state import Instance, ScaleSet

GOING = ("evicted", "deleted")  # dooms


def staying(scale_set: ScaleSet) -> list[Instance]:
    """The instances that the capacity counts: what is evicted or deleted takes its share along."""
    return [i for i in scale_set.instances.values() if i.doom != "surplus"]


def surplus(scale_set: ScaleSet) -> list[Instance]:
    """The instances beyond the capacity; protected ones are never among them."""
    living = staying(scale_set)
    left = len(living) - scale_set.capacity
    if left <= 0:
        return []
    going = [i for i in _order(scale_set, living) if not _protected(i)]
    if _mix(scale_set) is None:
        return going[:left]
    plenty = sum(i.priority == "Regular" for i in living)
    regular = min(left, max(0, plenty - regular_share(scale_set, scale_set.capacity)))
    first = [i for i in going if i.priority == "Regular"][:regular]
    others = [i for i in going if i.priority != "Regular"][: left - len(first)]
    rest = [i for i in going if i not in first and i not in others]
    return [*first, *others, *rest][:left]


def priorities(scale_set: ScaleSet, more: int) -> list[str]:
    """The priority of each of ``more`` new instances; empty where the scale set has but one."""
    if _mix(scale_set) is None:
        return [""] * more
    living = staying(scale_set)
    have = sum(i.priority == "Regular" for i in living)
    missing = regular_share(scale_set, len(living) + more) - have
    regular = min(more, max(0, missing))
    return ["Regular"] * regular + ["Spot"] * (more - regular)


def regular_share(scale_set: ScaleSet, count: int) -> int:
    """How many of ``count`` instances are to be regular ones; Spot gets the odd one."""
    mix = _mix(scale_set) or {}
    base = mix.get("baseRegularPriorityCount") or 0
    percent = mix.get("regularPriorityPercentageAboveBase") or 0
    return min(count, base + max(0, count - base) * percent // 100)


def _mix(scale_set: ScaleSet) -> dict[str, Any] | None:
    mix: dict[str, Any] | None = scale_set.model["properties"].get("priorityMixPolicy")
    return mix


def _order(scale_set: ScaleSet, living: list[Instance]) -> list[Instance]:
    """As they leave: the doomed, those never allocated, then by the policy (else the newest)."""
    policy = scale_set.model["properties"].get("scaleInPolicy") or {}
    oldest = (policy.get("rules") or ["Default"])[0] == "OldestVM"
    newest = living if oldest else living[::-1]
    return sorted(newest, key=lambda i: (i.doom not in GOING, i.phase != "creating"))


def _protected(instance: Instance) -> bool:
    protection = instance.protection
    return bool(
        protection.get("protectFromScaleIn") or protection.get("protectFromScaleSetActions")
    )
