"""Inject faults into a running local stack: evictions, killed or paused parts, Azure errors.

Used by `rekindle break`, benchmarks and tests. Functions return once the fault has taken effect and
raise TargetNotFound if its target does not exist.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import psutil

from rekindle.local.parts import HELD
from rekindle.local.running_stack import (
    RANK,
    SUPERVISOR,
    TORCHRUN,
    LocalMachine,
    StackInfo,
    TargetNotFound,
    alive,
    ask,
    machines,
    part,
    processes,
)

__all__ = ["LocalMachine", "StackInfo", "TargetNotFound", "machines"]
PARTS = ("service", "emulator", "azurite", "postgres")
LOOK_SECONDS = 0.02
BACK_SECONDS = 90.0
_GENTLE = {"postgres": signal.SIGINT}  # SIGTERM would wait for all clients


async def evict(
    stack: StackInfo, vm: LocalMachine, *, notice: bool = True, lingers: bool = False
) -> None:
    """Evict the machine; without notice it is dead on return.

    ``lingers``: it stays in Azure's list, deallocated.
    """
    body = {"scale_set": vm.scale_set, "instance_id": vm.instance_id}
    await ask(stack, "POST", "evict", {**body, "notice": notice, "lingers": lingers})


async def evict_all(
    stack: StackInfo, attempt_id: str, *, notice: bool = True
) -> list[LocalMachine]:
    """Evict all machines of an attempt at the same moment and return them."""
    taken = await machines(stack, attempt_id)
    await asyncio.gather(*(evict(stack, vm, notice=notice) for vm in taken))
    return taken


async def preempt(
    stack: StackInfo, attempt_id: str, *, nodes: int | None = None, then: str = "restart"
) -> None:
    """Preempt ``nodes`` (default: all) of an attempt's Azure ML job without notice.

    ``then``: restart (wait for other nodes), fail (with a PreemptionError), or cancel.
    """
    job = "rk-" + attempt_id.removeprefix("att-")
    await ask(stack, "POST", "azureml/preempt", {"job": job, "nodes": nodes, "then": then})


async def kill_supervisor(stack: StackInfo, vm: LocalMachine) -> int:
    """SIGKILL the machine's supervisor, not the trainer below it; return the process id."""
    return await _kill_one(vm, SUPERVISOR)


async def kill_trainer(stack: StackInfo, vm: LocalMachine, *, whole: bool = False) -> int:
    """SIGKILL one rank, or (``whole``) its torchrun; return the process id."""
    return await _kill_one(vm, TORCHRUN if whole else RANK)


async def pause_vm(stack: StackInfo, vm: LocalMachine, seconds: float) -> None:
    """Freeze everything on the machine for a while, as a live migration does.

    The machine sends no heartbeats meanwhile.
    """
    await _paused([p for p in _found(vm) if p.pid != vm.pid], seconds)


async def freeze_supervisor(stack: StackInfo, vm: LocalMachine, seconds: float) -> None:
    """Freeze the machine's supervisor for a while; its trainer continues."""
    await _paused(_found(vm, SUPERVISOR), seconds)


async def cut_node(
    stack: StackInfo, vm: LocalMachine, seconds: float, *, to: str = "*", mode: str = "drop"
) -> None:
    """Cut the machine off from service and Blob for a while; it keeps training."""
    async with cut_off(stack, vm, to=to, mode=mode):
        await asyncio.sleep(seconds)


@asynccontextmanager
async def cut_off(
    stack: StackInfo, vm: LocalMachine, *, to: str = "*", mode: str = "drop"
) -> AsyncIterator[None]:
    """Cut the machine off from what matches ``to``: HOST or HOST:PORT, with *.

    Other machines and Azure's metadata service stay reachable. ``mode`` drop: open connections
    hang and continue afterwards; reset: they are closed.
    """
    cut = {"vm": vm.name, "to": to}
    await ask(stack, "POST", "partition", {**cut, "cut": True, "mode": mode})
    try:
        yield
    finally:
        await ask(stack, "POST", "partition", {**cut, "cut": False})


async def slow_disk(
    stack: StackInfo, vm: LocalMachine, seconds: float, *, most: int = 1_000_000
) -> None:
    """Limit the machine's disk to ``most`` bytes per second for a while."""
    await ask(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": most})
    try:
        await asyncio.sleep(seconds)
    finally:
        await ask(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": None})


async def crash_vm(stack: StackInfo, vm: LocalMachine, how: str = "panic") -> None:
    """Crash the machine's system; Azure still lists it. ``how``: as `crash` takes."""
    await ask(stack, "POST", "crash", {"vm": vm.name, "as": how})


async def kill_part(stack: StackInfo, name: str) -> int:
    """SIGKILL a part, which restarts; return its old process id."""
    process = part(stack, name)
    process.kill()
    await _gone(process)
    return process.pid


async def restart(stack: StackInfo, name: str, within: float = BACK_SECONDS) -> None:
    """Stop a part in order and wait until it has restarted."""
    process = part(stack, name)
    process.send_signal(_GENTLE.get(name, signal.SIGTERM))
    await _gone(process)
    await back(stack, name, process.pid, within)


async def back(stack: StackInfo, name: str, before: int, within: float = BACK_SECONDS) -> None:
    """Wait until a part runs with another process id than ``before``, and is ready."""
    ready = stack.state / "ready" / name

    def again() -> bool:
        try:
            now = part(stack, name).pid
            return now != before and ready.read_text() == str(now)
        except (TargetNotFound, FileNotFoundError):
            return False

    if not await _until(again, within):
        raise TargetNotFound(
            f"{name} did not restart within {within:.0f} s; see the stack's output"
        )


async def pause_part(stack: StackInfo, name: str, seconds: float) -> None:
    """Freeze a part for a while; callers wait."""
    await _paused([part(stack, name)], seconds)


async def take_away(stack: StackInfo, name: str, seconds: float) -> None:
    """Kill a part and keep it stopped for a while; callers are refused.

    Returns when it has restarted and is ready.
    """
    process = part(stack, name)
    held = stack.state / HELD / name
    held.parent.mkdir(exist_ok=True)
    held.write_text(str(time.time() + seconds))
    process.kill()
    await _gone(process)
    await back(stack, name, process.pid, seconds + BACK_SECONDS)


async def arm_fault(stack: StackInfo, kind: str, **matching: object) -> str:
    """Arm one of the emulator's faults and return its id. Kinds: `emulator/faults/planted.py`.

    ``count`` (requests) or ``seconds`` end it, otherwise `clear_faults` does; ``method``,
    ``path``, ``region`` and ``vm_size`` select the requests.
    """
    return str((await ask(stack, "POST", "faults", {"kind": kind, **matching}))["id"])


async def faults(stack: StackInfo) -> list[dict[str, object]]:
    """Return the armed faults, and how often each was applied."""
    planted: list[dict[str, object]] = (await ask(stack, "GET", "faults"))["value"]
    return planted


async def clear_faults(stack: StackInfo, fault_id: str = "") -> None:
    """Remove one armed fault, or all."""
    await ask(stack, "DELETE", f"faults?id={fault_id}" if fault_id else "faults")


async def set_capacity(stack: StackInfo, region: str, vm_size: str, available: int | None) -> None:
    """Set how many more machines of a size the region has; None: unlimited."""
    body = {"region": region, "vm_size": vm_size, "available": available}
    await ask(stack, "POST", "capacity", body)


async def _kill_one(vm: LocalMachine, program: str) -> int:
    victim = _found(vm, program)[0]
    victim.kill()
    await _gone(victim)
    return victim.pid


def _found(vm: LocalMachine, program: str = "") -> list[psutil.Process]:
    found = processes(vm, program)
    if not found:
        raise TargetNotFound(f"no process of {program or 'any program'} runs on {vm.name}")
    return found


async def _paused(victims: Iterable[psutil.Process], seconds: float) -> None:
    victims = list(victims)
    _signal(victims, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _signal(victims, signal.SIGCONT)


def _signal(victims: Iterable[psutil.Process], number: signal.Signals) -> None:
    for victim in victims:
        try:
            victim.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # it has ended


async def _gone(process: psutil.Process) -> None:
    """Wait until the process has ended."""
    if not await _until(lambda: not alive(process), BACK_SECONDS):
        raise TargetNotFound(f"process {process.pid} did not exit; see the stack's output")


async def _until(true: Callable[[], bool], within: float) -> bool:
    """Poll until ``true()``; return False after ``within`` seconds."""
    latest = time.monotonic() + within
    while not true():
        if time.monotonic() > latest:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
