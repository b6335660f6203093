"""What an order of a VM's owner does to it: to its power, its place, its disk.

Every order but ``start`` begins with the death of the VM's processes: it is the instance's
``doom`` until the fabric has killed them, as an eviction would be.
"""

from emulator.core.state import EmulatorState, InstanceRow, ScaleSetRow

KILLING = ("deallocate", "powerOff", "restart", "redeploy")
ORDERS = ("start", *KILLING)


def wipes(scale_set: ScaleSetRow, instance: InstanceRow) -> bool:
    """Whether the disk of a killed VM is lost; one on the host is, when the VM leaves it."""
    if instance.doom == "redeploy":
        return scale_set.ephemeral
    if instance.doom == "evicted":
        return scale_set.profile.get("evictionPolicy") == "Delete"
    return instance.doom not in ("deallocate", "powerOff", "restart")


def settle(state: EmulatorState, instance: InstanceRow) -> bool:
    """Give a killed VM the state that its owner ordered; False if it was no such order."""
    doom = instance.doom
    if doom not in KILLING:
        return False
    phase = "deallocated" if doom == "deallocate" else instance.phase
    stopped = instance.stopped or doom == "powerOff"
    state.change(instance, doom="", eviction=None, booted=False, phase=phase, stopped=stopped)
    return True
