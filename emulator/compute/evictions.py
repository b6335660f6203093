"""Evictions of Spot instances, and the Scheduled Events that announce them."""

import uuid
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from emulator.core.errors import not_allowed
from emulator.core.state import EmulatorState, Eviction, InstanceRow, ScaleSetRow


def announce(
    state: EmulatorState,
    instance: InstanceRow,
    now: float,
    seconds: float,
    *,
    lingers: bool = False,
) -> None:
    """Give notice of an eviction in ``seconds``; one that is announced already stands."""
    _check(state.scale_sets[instance.set_key], instance)
    if instance.eviction is None:
        eviction = Eviction(_event_id(), now + seconds, announced=True, lingers=lingers)
        state.change(instance, eviction=eviction, incarnation=instance.incarnation + 1)


def strike(
    state: EmulatorState, instance: InstanceRow, at: float, *, lingers: bool = False
) -> None:
    """Evict at that time; no event is ever shown of it."""
    _check(state.scale_sets[instance.set_key], instance)
    eviction = Eviction(_event_id(), at, announced=False, lingers=lingers)
    state.change(instance, eviction=eviction)


def acknowledge(state: EmulatorState, instance: InstanceRow, event_id: str) -> bool:
    """Start an announced event now, as the VM agreed; return whether it has this event."""
    instance = state.now(instance)
    eviction = instance.eviction
    if eviction is None or not eviction.announced or eviction.event_id != event_id:
        return False
    agreed = replace(eviction, acknowledged=True)
    state.change(instance, eviction=agreed, incarnation=instance.incarnation + 1)
    return True


def document(scale_set: ScaleSetRow, instance: InstanceRow) -> dict[str, Any]:
    """Return the Scheduled Events document of one VM."""
    eviction = instance.eviction
    events = []
    if eviction and eviction.announced:
        events.append(_event(scale_set.vm_name(instance), eviction))
    return {"DocumentIncarnation": instance.incarnation, "Events": events}


def _event(vm_name: str, eviction: Eviction) -> dict[str, Any]:
    started = eviction.acknowledged
    return {
        "EventId": eviction.event_id,
        "EventType": "Preempt",
        "EventStatus": "Started" if started else "Scheduled",
        "ResourceType": "VirtualMachine",
        "Resources": [vm_name],
        "NotBefore": "" if started else formatdate(eviction.not_before, usegmt=True),
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def _check(scale_set: ScaleSetRow, instance: InstanceRow) -> None:
    name = scale_set.vm_name(instance)
    if not scale_set.spot:
        only = "Eviction can be simulated only on Azure Spot Virtual Machines"
        raise not_allowed(f"{only}; '{name}' is none.")
    if instance.phase != "allocated":
        raise not_allowed(f"The VM '{name}' is not allocated, so it cannot be evicted.")


def _event_id() -> str:
    return str(uuid.uuid4()).upper()
