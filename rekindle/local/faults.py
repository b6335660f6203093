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

from rekindle.local.parts import HOLD_FOLDER
from rekindle.local.running_stack import (
    RANK,
    SUPERVISOR,
    TORCHRUN,
    LocalMachine,
    StackInfo,
    TargetNotFound,
    call_emulator,
    is_alive,
    list_machines,
    part_process,
    vm_processes,
)

__all__ = ["LocalMachine", "StackInfo", "TargetNotFound", "list_machines"]
PARTS = ("service", "emulator", "azurite", "postgres")
POLL_SECONDS = 0.02
RESTART_SECONDS = 90.0
_STOP_SIGNALS = {"postgres": signal.SIGINT}  # SIGTERM would wait for all clients


async def evict_vm(
    stack: StackInfo, vm: LocalMachine, *, notice: bool = True, lingers: bool = False
) -> None:
    """Evict the machine; without notice it is dead on return.

    ``lingers``: it stays in Azure's list, deallocated.
    """
    body = {"scale_set": vm.scale_set, "instance_id": vm.instance_id}
    await call_emulator(stack, "POST", "evict", {**body, "notice": notice, "lingers": lingers})


async def evict_attempt(
    stack: StackInfo, attempt_id: str, *, notice: bool = True
) -> list[LocalMachine]:
    """Evict all machines of an attempt at the same moment and return them."""
    evicted = await list_machines(stack, attempt_id)
    await asyncio.gather(*(evict_vm(stack, vm, notice=notice) for vm in evicted))
    return evicted


async def preempt_nodes(
    stack: StackInfo, attempt_id: str, *, nodes: int | None = None, then: str = "restart"
) -> None:
    """Preempt ``nodes`` (default: all) of an attempt's Azure ML job without notice.

    ``then``: restart (wait for other nodes), fail (with a PreemptionError), or cancel.
    """
    job = "rk-" + attempt_id.removeprefix("att-")
    await call_emulator(
        stack, "POST", "azureml/preempt", {"job": job, "nodes": nodes, "then": then}
    )


async def kill_supervisor(stack: StackInfo, vm: LocalMachine) -> int:
    """SIGKILL the machine's supervisor, not the trainer below it; return the process id."""
    return await _kill_process(vm, SUPERVISOR)


async def kill_trainer(stack: StackInfo, vm: LocalMachine, *, launcher: bool = False) -> int:
    """SIGKILL one rank, or (``launcher``) its torchrun; return the process id."""
    return await _kill_process(vm, TORCHRUN if launcher else RANK)


async def pause_vm(stack: StackInfo, vm: LocalMachine, seconds: float) -> None:
    """Freeze everything on the machine for a while, as a live migration does.

    The machine sends no heartbeats meanwhile.
    """
    await _freeze_processes([p for p in _find_processes(vm) if p.pid != vm.pid], seconds)


async def freeze_supervisor(stack: StackInfo, vm: LocalMachine, seconds: float) -> None:
    """Freeze the machine's supervisor for a while; its trainer continues."""
    await _freeze_processes(_find_processes(vm, SUPERVISOR), seconds)


async def cut_node(
    stack: StackInfo, vm: LocalMachine, seconds: float, *, to: str = "*", mode: str = "drop"
) -> None:
    """Cut the machine off from service and Blob for a while; it keeps training."""
    async with network_partition(stack, vm, to=to, mode=mode):
        await asyncio.sleep(seconds)


@asynccontextmanager
async def network_partition(
    stack: StackInfo, vm: LocalMachine, *, to: str = "*", mode: str = "drop"
) -> AsyncIterator[None]:
    """Cut the machine off from what matches ``to``: HOST or HOST:PORT, with *.

    Other machines and Azure's metadata service stay reachable. ``mode`` drop: open connections
    hang and continue afterwards; reset: they are closed.
    """
    cut = {"vm": vm.name, "to": to}
    await call_emulator(stack, "POST", "partition", {**cut, "cut": True, "mode": mode})
    try:
        yield
    finally:
        await call_emulator(stack, "POST", "partition", {**cut, "cut": False})


async def slow_disk(
    stack: StackInfo, vm: LocalMachine, seconds: float, *, most: int = 1_000_000
) -> None:
    """Limit the machine's disk to ``most`` bytes per second for a while."""
    await call_emulator(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": most})
    try:
        await asyncio.sleep(seconds)
    finally:
        await call_emulator(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": None})


async def crash_vm(stack: StackInfo, vm: LocalMachine, mode: str = "panic") -> None:
    """Crash the machine's system; Azure still lists it. ``mode``: as `crash` takes."""
    await call_emulator(stack, "POST", "crash", {"vm": vm.name, "as": mode})


async def kill_part(stack: StackInfo, name: str) -> int:
    """SIGKILL a part, which restarts; return its old process id."""
    process = part_process(stack, name)
    process.kill()
    await _wait_for_exit(process)
    return process.pid


async def restart_part(stack: StackInfo, name: str, limit: float = RESTART_SECONDS) -> None:
    """Stop a part in order and wait until it has restarted."""
    process = part_process(stack, name)
    process.send_signal(_STOP_SIGNALS.get(name, signal.SIGTERM))
    await _wait_for_exit(process)
    await wait_for_restart(stack, name, process.pid, limit)


async def wait_for_restart(
    stack: StackInfo, name: str, before: int, limit: float = RESTART_SECONDS
) -> None:
    """Wait until a part runs with another process id than ``before``, and is ready."""
    ready = stack.state / "ready" / name

    def has_restarted() -> bool:
        try:
            now = part_process(stack, name).pid
            return now != before and ready.read_text() == str(now)
        except (TargetNotFound, FileNotFoundError):
            return False

    if not await _wait_until(has_restarted, limit):
        raise TargetNotFound(f"{name} did not restart within {limit:.0f} s; see the stack's output")


async def pause_part(stack: StackInfo, name: str, seconds: float) -> None:
    """Freeze a part for a while; callers wait."""
    await _freeze_processes([part_process(stack, name)], seconds)


async def stop_part(stack: StackInfo, name: str, seconds: float) -> None:
    """Kill a part and keep it stopped for a while; callers are refused.

    Returns when it has restarted and is ready.
    """
    process = part_process(stack, name)
    hold_file = stack.state / HOLD_FOLDER / name
    hold_file.parent.mkdir(exist_ok=True)
    hold_file.write_text(str(time.time() + seconds))
    process.kill()
    await _wait_for_exit(process)
    await wait_for_restart(stack, name, process.pid, seconds + RESTART_SECONDS)


async def arm_fault(stack: StackInfo, kind: str, **matching: object) -> str:
    """Arm one of the emulator's faults and return its id. Kinds: `emulator/faults/planted.py`.

    ``count`` (requests) or ``seconds`` end it, otherwise `clear_faults` does; ``method``,
    ``path``, ``region`` and ``vm_size`` select the requests.
    """
    return str((await call_emulator(stack, "POST", "faults", {"kind": kind, **matching}))["id"])


async def list_faults(stack: StackInfo) -> list[dict[str, object]]:
    """Return the armed faults, and how often each was applied."""
    armed: list[dict[str, object]] = (await call_emulator(stack, "GET", "faults"))["value"]
    return armed


async def clear_faults(stack: StackInfo, fault_id: str = "") -> None:
    """Remove one armed fault, or all."""
    await call_emulator(stack, "DELETE", f"faults?id={fault_id}" if fault_id else "faults")


async def _kill_process(vm: LocalMachine, program: str) -> int:
    victim = _find_processes(vm, program)[0]
    victim.kill()
    await _wait_for_exit(victim)
    return victim.pid


def _find_processes(vm: LocalMachine, program: str = "") -> list[psutil.Process]:
    matching = vm_processes(vm, program)
    if not matching:
        raise TargetNotFound(f"no process of {program or 'any program'} runs on {vm.name}")
    return matching


async def _freeze_processes(victims: Iterable[psutil.Process], seconds: float) -> None:
    victims = list(victims)
    _send_signal(victims, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _send_signal(victims, signal.SIGCONT)


def _send_signal(victims: Iterable[psutil.Process], number: signal.Signals) -> None:
    for victim in victims:
        try:
            victim.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # it has ended


async def _wait_for_exit(process: psutil.Process) -> None:
    """Wait until the process has ended."""
    if not await _wait_until(lambda: not is_alive(process), RESTART_SECONDS):
        raise TargetNotFound(f"process {process.pid} did not exit; see the stack's output")


async def _wait_until(condition: Callable[[], bool], limit: float) -> bool:
    """Poll until ``condition()``; return False after ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
