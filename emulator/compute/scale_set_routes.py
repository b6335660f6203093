"""Where scale sets, their instances and virtual machines answer."""

from emulator.compute import instances, scale_set_actions, scale_sets, virtual_machines
from emulator.compute.power import ORDERS
from emulator.compute.scale_set_actions import on_instance, on_set
from emulator.machines import boot_diagnostics
from emulator.parts import COMPUTE, GROUP, SUBSCRIPTION, AzurePart

IN_GROUP = GROUP + COMPUTE
SETS = "/virtualMachineScaleSets"
SET = IN_GROUP + SETS + "/{name}"
INSTANCE = SET + "/virtualMachines/{instance}"
MACHINES = "/virtualMachines"
MACHINE = IN_GROUP + MACHINES + "/{vm}"

PART = AzurePart(
    arm=[
        ("GET", SUBSCRIPTION + COMPUTE + SETS, scale_sets.list_all),
        ("GET", IN_GROUP + SETS, scale_sets.list_in_group),
        ("GET", SET, scale_sets.get),
        ("PUT", SET, scale_sets.put),
        ("PATCH", SET, scale_sets.patch),
        ("DELETE", SET, scale_sets.delete),
        ("GET", SET + "/instanceView", scale_sets.view),
        ("POST", SET + "/delete", scale_set_actions.delete_instances),
        ("GET", SET + "/virtualMachines", instances.list_all),
        ("GET", INSTANCE, instances.get),
        ("DELETE", INSTANCE, instances.delete),
        ("GET", INSTANCE + "/instanceView", instances.view),
        ("POST", INSTANCE + "/simulateEviction", instances.simulate_eviction),
        ("POST", INSTANCE + boot_diagnostics.RETRIEVE, boot_diagnostics.of_instance),
        ("GET", SUBSCRIPTION + COMPUTE + MACHINES, virtual_machines.list_all),
        ("GET", IN_GROUP + MACHINES, virtual_machines.list_in_group),
        ("GET", MACHINE, virtual_machines.get),
        ("DELETE", MACHINE, virtual_machines.delete),
        ("GET", MACHINE + "/instanceView", virtual_machines.view),
        ("POST", MACHINE + "/simulateEviction", virtual_machines.simulate_eviction),
        ("POST", MACHINE + boot_diagnostics.RETRIEVE, boot_diagnostics.of_virtual_machine),
        ("GET", boot_diagnostics.BLOB, boot_diagnostics.serial_log),
        *(("POST", f"{SET}/{kind}", on_set(kind)) for kind in ORDERS),
        *(("POST", f"{INSTANCE}/{kind}", on_instance(kind)) for kind in ORDERS),
        *(("POST", f"{MACHINE}/{kind}", virtual_machines.ordered(kind)) for kind in ORDERS),
    ],
    chores=[scale_set_actions.carry_out],
)
