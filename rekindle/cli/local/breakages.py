"""What can be broken in a local stack, and what happens then."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rekindle.local import faults
from rekindle.local.faults import Facts, Machine


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """One thing that can be broken; one of the four says how."""

    then: str  # what happens, for the list
    part: Callable[[Facts], Awaitable[object]] | None = None
    machine: Callable[[Facts, Machine], Awaitable[object]] | None = None
    machine_lasting: Callable[[Facts, Machine, float], Awaitable[object]] | None = None
    lasting: Callable[[Facts, float], Awaitable[object]] | None = None

    @property
    def of_a_machine(self) -> bool:
        """Whether somebody has to say which machine."""
        return self.machine is not None or self.machine_lasting is not None


BREAKAGES = {
    "service": Breakage(
        then="The service is killed and started again; machines train on meanwhile.",
        part=faults.kill_service,
    ),
    "emulator": Breakage(
        then="Azure's front is killed and started again; machines run on.",
        part=faults.kill_emulator,
    ),
    "postgres": Breakage(
        then="The database restarts; the API answers 503 until it is back.",
        part=lambda stack: faults.restart(stack, "postgres"),
    ),
    "azurite": Breakage(
        then="Blob refuses everybody for --seconds; saves wait in the machines' memory.",
        lasting=lambda stack, seconds: faults.take_away(stack, "azurite", seconds),
    ),
    "network": Breakage(
        then="The service is away for --seconds; machines train on and report later.",
        lasting=lambda stack, seconds: faults.take_away(stack, "service", seconds),
    ),
    "trainer": Breakage(
        then="One training process is killed; the job resumes from its newest checkpoint.",
        machine=faults.kill_trainer,
    ),
    "supervisor": Breakage(
        then="A machine's supervisor is killed and started again; the job goes on from the "
        "newest save, in the same attempt.",
        machine=faults.kill_supervisor,
    ),
    "vm": Breakage(
        then="A machine is gone without notice; the job resumes on new ones.",
        machine=faults.kill_vm,
    ),
    "crash": Breakage(
        then="A machine's system dies, and Azure counts it as running. The others stop; the job "
        "resumes on new machines, once it is plain that this one stays silent.",
        machine=faults.crash_vm,
    ),
    "node": Breakage(
        then="A machine is cut off from service and Blob for --seconds; it trains on, and "
        "saves what it could not once it is back.",
        machine_lasting=faults.cut_node,
    ),
    "freeze": Breakage(
        then="A machine's supervisor stands still for --seconds; its trainer goes on.",
        machine_lasting=faults.freeze_supervisor,
    ),
    "disk": Breakage(
        then="A machine's disk takes 1 MB/s for --seconds; saves take longer.",
        machine_lasting=faults.slow_disk,
    ),
    "throttle": Breakage(
        then="Azure answers 429 for --seconds; the service waits as it is told.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "throttle", seconds=seconds, retry_after=5
        ),
    ),
    "errors": Breakage(
        then="Azure answers 500 for --seconds; the service tries again.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "error", seconds=seconds, status=500
        ),
    ),
    "capacity": Breakage(
        then="Azure has no machines for --seconds; jobs wait, or go elsewhere.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "sku_not_available", seconds=seconds
        ),
    ),
    "quota": Breakage(
        then="The region's quota is used up for --seconds; jobs wait, or go elsewhere.",
        lasting=lambda stack, seconds: faults.arm_fault(stack, "quota", seconds=seconds),
    ),
    "allocation": Breakage(
        then="For --seconds Azure accepts an order for machines, and then has none.",
        lasting=lambda stack, seconds: faults.arm_fault(
            stack, "allocation_failed", seconds=seconds
        ),
    ),
}


async def carry_out(found: Breakage, stack: Facts, victim: Machine | None, seconds: float) -> None:
    """Do it; returns when the harm is done, or over."""
    if found.part is not None:
        await found.part(stack)
    if found.machine is not None and victim is not None:
        await found.machine(stack, victim)
    if found.machine_lasting is not None and victim is not None:
        await found.machine_lasting(stack, victim, seconds)
    if found.lasting is not None:
        await found.lasting(stack, seconds)
