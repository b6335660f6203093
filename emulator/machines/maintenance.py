"""What the platform does to VMs besides evictions, with the Scheduled Events that announce it.

An event is Scheduled until its NotBefore or until the VM agrees, then Started, and vanishes
once it is over. What it does to the VM is done as its owner's orders are (`compute.power`).
"""

import uuid
from dataclasses import asdict, dataclass, replace
from email.utils import formatdate
from typing import Any

from emulator.core.errors import ArmError, invalid
from emulator.core.state import EmulatorState, InstanceRow, ScaleSetRow
from emulator.fabric import Fabric
from emulator.machines import processes

NOTICE = {"Freeze": 900.0, "Reboot": 900.0, "Redeploy": 600.0}  # the least
DOOM = {"Reboot": "restart", "Redeploy": "redeploy"}
UNKNOWN = -1  # how long it lasts
_WHY = {
    "Freeze": "Virtual machine is being paused because of a memory-preserving Live Migration "
    "operation.",
    "Reboot": "Host server is undergoing maintenance.",
    "Redeploy": "The virtual machine is scheduled to move to another host.",
}
_FAILED = "Host server is undergoing an emergency repair."


@dataclass(frozen=True, kw_only=True)
class PlatformEvent:
    """One event of one VM; kept in `Instance.maintenance` as JSON."""

    id: str
    kind: str
    not_before: float
    why: str
    seconds: int = UNKNOWN
    agreed: bool = False
    started_at: float | None = None

    def row(self, vm_name: str) -> dict[str, Any]:
        """Return the event as the metadata service shows it."""
        started = self.started_at is not None or self.agreed
        return {
            "EventId": self.id,
            "EventType": self.kind,
            "EventStatus": "Started" if started else "Scheduled",
            "ResourceType": "VirtualMachine",
            "Resources": [vm_name],
            "NotBefore": "" if started else formatdate(self.not_before, usegmt=True),
            "Description": self.why,
            "EventSource": "Platform",
            "DurationInSeconds": self.seconds,
        }


def announce(
    state: EmulatorState,
    scale_set: ScaleSetRow,
    instance: InstanceRow,
    kind: str,
    now: float,
    *,
    notice: float | None = None,
    seconds: int | None = None,
) -> PlatformEvent:
    """Schedule something; Azure gives no less notice than `NOTICE` says."""
    if kind not in NOTICE:
        raise invalid(f"'kind' must be one of {', '.join(NOTICE)}, not {kind!r}.")
    least = NOTICE[kind]
    if notice is not None and notice < least:
        raise invalid(f"Azure announces {kind} at least {least:g} s ahead; 'notice' is less.")
    if instance.phase != "allocated" or instance.doom:
        message = f"The VM '{scale_set.vm_name(instance)}' is not allocated."
        raise ArmError(409, "OperationNotAllowed", message)
    event = PlatformEvent(
        id=str(uuid.uuid4()).upper(),
        kind=kind,
        not_before=now + (least if notice is None else notice),
        why=_WHY[kind],
        seconds=(5 if kind == "Freeze" else UNKNOWN) if seconds is None else seconds,
    )
    _store(state, instance, event)
    return event


def host_failed(fabric: Fabric, instance: InstanceRow, now: float) -> None:
    """Have the host of a VM fail: the event starts at once, and the VM boots on another host."""
    id_ = str(uuid.uuid4()).upper()
    event = PlatformEvent(id=id_, kind="Reboot", not_before=now, why=_FAILED, started_at=now)
    fabric.doom(instance, "redeploy")
    _store(fabric.state, instance, event)


def acknowledge(state: EmulatorState, instance: InstanceRow, event_id: str) -> bool:
    """Start an announced event now, as the VM agreed; return whether it has this event."""
    for event in events(state.now(instance)):
        if event.id.lower() == event_id.lower():
            _store(state, instance, replace(event, agreed=True))
            return True
    return False


def cancel_announced(state: EmulatorState, instance: InstanceRow) -> int:
    """Take back what is announced and has not begun; return how many that were."""
    started = [e for e in events(instance) if e.started_at is not None]
    count = len(instance.maintenance) - len(started)
    eviction = instance.eviction
    if eviction and eviction.announced and not eviction.acknowledged and not instance.doom:
        eviction = None
        count += 1
    state.change(
        instance,
        maintenance=[asdict(event) for event in started],
        eviction=eviction,
        incarnation=instance.incarnation + bool(count),
    )
    return count


def events(instance: InstanceRow) -> list[PlatformEvent]:
    """Everything that is announced or under way."""
    return [PlatformEvent(**row) for row in instance.maintenance]


def advance_events(fabric: Fabric, now: float) -> bool:
    """Begin what is due, end what is over; say whether anything changed."""
    changed = False
    for _, vm in fabric.instances():
        for event in events(vm):
            instance = fabric.state.now(vm)
            if event.started_at is None and (event.agreed or now >= event.not_before):
                _store(fabric.state, instance, replace(event, started_at=now))
                _begin(fabric, instance, event)
            elif event.started_at is not None and _is_over(fabric, instance, event, now):
                _end(fabric, instance, event)
            else:
                continue
            changed = True
    return changed


def _begin(fabric: Fabric, instance: InstanceRow, event: PlatformEvent) -> None:
    if doom := DOOM.get(event.kind):
        fabric.doom(instance, doom)
    elif not fabric.settings.hollow:
        processes.freeze(fabric.folder(instance), fabric.metadata_url(instance))


def _is_over(fabric: Fabric, instance: InstanceRow, event: PlatformEvent, now: float) -> bool:
    """Return whether an event is over: a freeze after its duration, a reboot once the VM is up."""
    if event.kind == "Freeze":
        return now >= (event.started_at or now) + event.seconds
    return not instance.doom and (fabric.running(instance) or instance.phase != "allocated")


def _end(fabric: Fabric, instance: InstanceRow, event: PlatformEvent) -> None:
    _replace(fabric.state, instance, event, [])
    if event.kind == "Freeze" and not fabric.settings.hollow:
        processes.thaw(fabric.folder(instance), fabric.metadata_url(instance))


def _store(state: EmulatorState, instance: InstanceRow, event: PlatformEvent) -> None:
    _replace(state, instance, event, [asdict(event)])


def _replace(
    state: EmulatorState, instance: InstanceRow, old: PlatformEvent, new: list[dict[str, Any]]
) -> None:
    now = state.now(instance)
    unchanged = [row for row in now.maintenance if row["id"] != old.id]
    state.change(now, maintenance=[*unchanged, *new], incarnation=now.incarnation + 1)
