"""Where scale sets, their instances and virtual machines answer."""

from emulator.compute import instances, scale_set_actions, scale_sets, virtual_machines
from emulator.compute.power import ORDERS
from emulator.compute.scale_set_actions import on_instance, on_set
from emulator.machines import boot_diagnostics
from emulator.parts import COMPUTE, GROUP, SUBSCRIPTION, AzurePart, Route

IN_GROUP = GROUP + COMPUTE
SETS = "/virtualMachineScaleSets"
SET = IN_GROUP + SETS + "/{name}"
INSTANCE = SET + "/virtualMachines/{instance}"
MACHINES = "/virtualMachines"
MACHINE = IN_GROUP + MACHINES + "/{vm}"


def _vm_routes(address: str) -> list[Route]:
    """Return what one VM answers, at its address in the scale set or as a virtual machine."""
    return [
        ("GET", address, instances.get),
        ("DELETE", address, instances.delete),
        ("GET", address + "/instanceView", instances.view),
        ("POST", address + "/simulateEviction", instances.simulate_eviction),
        ("POST", address + boot_diagnostics.RETRIEVE, boot_diagnostics.retrieve),
        *(("POST", f"{address}/{kind}", on_instance(kind)) for kind in ORDERS),
    ]


PART = AzurePart(
    arm=[
        ("GET", SUBSCRIPTION + COMPUTE + SETS, scale_sets.list_all),
        ("GET", IN_GROUP + SETS, scale_sets.list_all),
        ("GET", SET, scale_sets.get),
        ("PUT", SET, scale_sets.put),
        ("PATCH", SET, scale_sets.patch),
        ("DELETE", SET, scale_sets.delete),
        ("GET", SET + "/instanceView", scale_sets.view),
        ("POST", SET + "/delete", scale_set_actions.delete_instances),
        ("GET", SET + "/virtualMachines", instances.list_all),
        ("GET", SUBSCRIPTION + COMPUTE + MACHINES, virtual_machines.list_all),
        ("GET", IN_GROUP + MACHINES, virtual_machines.list_all),
        ("GET", boot_diagnostics.BLOB, boot_diagnostics.serial_log),
        *(("POST", f"{SET}/{kind}", on_set(kind)) for kind in ORDERS),
        *(route for one in (INSTANCE, MACHINE) for route in _vm_routes(one)),
    ],
    chores=[scale_set_actions.carry_out],
)
