"""Faults that `rekindle break` injects into a local stack, and their effects."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rekindle.local import faults
from rekindle.local.faults import LocalMachine, StackInfo


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """One fault and its effect; exactly one of the four functions is set."""

    effect: str  # for the list
    part: Callable[[StackInfo], Awaitable[object]] | None = None
    machine: Callable[[StackInfo, LocalMachine], Awaitable[object]] | None = None
    machine_lasting: Callable[[StackInfo, LocalMachine, float], Awaitable[object]] | None = None
    lasting: Callable[[StackInfo, float], Awaitable[object]] | None = None

    @property
    def needs_machine(self) -> bool:
        """Whether the fault needs a machine."""
        return self.machine is not None or self.machine_lasting is not None


BREAKAGES = {
    "service": Breakage(
        effect="Kills the service; it restarts, and machines keep training.",
        part=lambda stack: faults.kill_part(stack, "service"),
    ),
    "emulator": Breakage(
        effect="Kills the Azure emulator; it restarts, and machines keep running.",
        part=lambda stack: faults.kill_part(stack, "emulator"),
    ),
    "postgres": Breakage(
        effect="Restarts the database; the API answers 503 meanwhile.",
        part=lambda stack: faults.restart_part(stack, "postgres"),
    ),
    "azurite": Breakage(
        effect="Stops Blob for --seconds; checkpoints wait in the machines' memory.",
        lasting=lambda stack, seconds: faults.stop_part(stack, "azurite", seconds),
    ),
    "network": Breakage(
        effect="Stops the service for --seconds; machines keep training and report later.",
        lasting=lambda stack, seconds: faults.stop_part(stack, "service", seconds),
    ),
    "trainer": Breakage(
        effect="Kills one training process; the job resumes from its newest checkpoint.",
        machine=faults.kill_trainer,
    ),
    "supervisor": Breakage(
        effect="Kills a machine's supervisor; it restarts, and the attempt resumes from the newest "
        "checkpoint.",
        machine=faults.kill_supervisor,
    ),
    "vm": Breakage(
        effect="Removes a machine without notice; the job resumes on new machines.",
        machine=lambda stack, vm: faults.evict_vm(stack, vm, notice=False),
    ),
    "crash": Breakage(
        effect="Crashes a machine's operating system while Azure shows it as running; the job "
        "resumes on new machines after the dead-node timeout.",
        machine=faults.crash_vm,
    ),
    "node": Breakage(
        effect="Cuts a machine off from service and Blob for --seconds; it keeps training and "
        "uploads afterwards.",
        machine_lasting=faults.cut_node,
    ),
    "freeze": Breakage(
        effect="Freezes a machine's supervisor for --seconds; its trainer continues.",
        machine_lasting=faults.freeze_supervisor,
    ),
    "disk": Breakage(
        effect="Limits a machine's disk to 1 MB/s for --seconds; checkpoints take longer.",
        machine_lasting=faults.slow_disk,
    ),
    "throttle": Breakage(
        effect="Makes Azure answer 429 for --seconds; the service honours Retry-After.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "throttle", seconds=seconds, retry_after=5
        ),
    ),
    "errors": Breakage(
        effect="Makes Azure answer 500 for --seconds; the service retries.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "error", seconds=seconds, status=500
        ),
    ),
    "capacity": Breakage(
        effect="Removes Azure's capacity for --seconds; jobs wait or move to another region.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "sku_not_available", seconds=seconds
        ),
    ),
    "quota": Breakage(
        effect="Exhausts the region's quota for --seconds; jobs wait or move to another region.",
        lasting=lambda stack, seconds: faults.arm_fault(stack, "quota", seconds=seconds),
    ),
    "allocation": Breakage(
        effect="Makes allocations fail after Azure accepts the request, for --seconds.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "allocation_failed", seconds=seconds
        ),
    ),
}


async def inject_breakage(
    breakage: Breakage, stack: StackInfo, victim: LocalMachine | None, seconds: float
) -> None:
    """Inject the fault; return when it has taken effect or is over."""
    if breakage.part is not None:
        await breakage.part(stack)
    if breakage.machine is not None and victim is not None:
        await breakage.machine(stack, victim)
    if breakage.machine_lasting is not None and victim is not None:
        await breakage.machine_lasting(stack, victim, seconds)
    if breakage.lasting is not None:
        await breakage.lasting(stack, seconds)
