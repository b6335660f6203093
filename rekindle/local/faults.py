"""Breaks a running local stack: evicts machines, kills and pauses parts, plants Azure's faults.

For `rekindle break`, for benchmarks and for tests. Parts are known as processes only.
Every function returns once the harm is done; NotThere says what there was nothing to do to.
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
    Facts,
    Machine,
    NotThere,
    alive,
    ask,
    machines,
    part,
    processes,
)

__all__ = ["Facts", "Machine", "NotThere", "machines"]
PARTS = ("service", "emulator", "azurite", "postgres")
LOOK_SECONDS = 0.02
BACK_SECONDS = 90.0
_GENTLE = {"postgres": signal.SIGINT}  # SIGTERM would wait for every client to go


async def evict(stack: Facts, vm: Machine, *, notice: bool = True) -> None:
    """Azure takes the machine back; without notice it is dead when this returns."""
    await _evict(stack, vm, notice=notice)


async def evict_all(stack: Facts, attempt_id: str, *, notice: bool = True) -> list[Machine]:
    """Azure takes every machine of an attempt back at the same moment; return them."""
    taken = await machines(stack, attempt_id)
    await asyncio.gather(*(_evict(stack, vm, notice=notice) for vm in taken))
    return taken


async def preempt(
    stack: Facts, attempt_id: str, *, nodes: int | None = None, then: str = "restart"
) -> None:
    """Azure ML takes ``nodes`` (default: all) of an attempt's job without notice.

    ``then``: the job waits for others (restart), or ends: fail, with a PreemptionError, or cancel.
    """
    job = "rk-" + attempt_id.removeprefix("att-")
    await ask(stack, "POST", "azureml/preempt", {"job": job, "nodes": nodes, "then": then})


async def kill_vm(stack: Facts, vm: Machine) -> None:
    """The machine is gone from one moment to the next."""
    await _evict(stack, vm, notice=False)


async def linger(stack: Facts, vm: Machine) -> None:
    """Evict without notice; the machine stays in Azure's list, deallocated."""
    await _evict(stack, vm, notice=False, lingers=True)


async def kill_supervisor(stack: Facts, vm: Machine) -> int:
    """SIGKILL the machine's supervisor, not the trainer below it; return the process id."""
    return await _kill_one(vm, SUPERVISOR)


async def kill_trainer(stack: Facts, vm: Machine, *, whole: bool = False) -> int:
    """SIGKILL one rank, or (``whole``) its torchrun; return the process id."""
    return await _kill_one(vm, TORCHRUN if whole else RANK)


async def pause_vm(stack: Facts, vm: Machine, seconds: float) -> None:
    """Freeze everything on the machine, as a live migration does, and let it go on after.

    Nobody hears of it meanwhile: for the service it is cut off.
    """
    await _paused([p for p in _found(vm) if p.pid != vm.pid], seconds)


async def freeze_supervisor(stack: Facts, vm: Machine, seconds: float) -> None:
    """The machine's supervisor stands still for a while; its trainer goes on."""
    await _paused(_found(vm, SUPERVISOR), seconds)


async def cut_node(
    stack: Facts, vm: Machine, seconds: float, *, to: str = "*", mode: str = "drop"
) -> None:
    """Cut the machine off from service and Blob for a while; it trains on, and then is back."""
    async with cut_off(stack, vm, to=to, mode=mode):
        await asyncio.sleep(seconds)


@asynccontextmanager
async def cut_off(
    stack: Facts, vm: Machine, *, to: str = "*", mode: str = "drop"
) -> AsyncIterator[None]:
    """Meanwhile the machine is cut off from what matches ``to``: HOST or HOST:PORT, with *.

    Not from other machines and not from Azure's metadata service. ``mode`` drop: what is under
    way hangs and goes on after; reset: it breaks off.
    """
    cut = {"vm": vm.name, "to": to}
    await ask(stack, "POST", "partition", {**cut, "cut": True, "mode": mode})
    try:
        yield
    finally:
        await ask(stack, "POST", "partition", {**cut, "cut": False})


async def slow_disk(stack: Facts, vm: Machine, seconds: float, *, most: int = 1_000_000) -> None:
    """For a while the machine's disk takes no more than ``most`` bytes per second."""
    await ask(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": most})
    try:
        await asyncio.sleep(seconds)
    finally:
        await ask(stack, "POST", "disk", {"vm": vm.name, "bytes_per_second": None})


async def crash_vm(stack: Facts, vm: Machine, how: str = "panic") -> None:
    """The machine dies without a word, and stays in Azure's list; ``how``: as `crash` takes."""
    await ask(stack, "POST", "crash", {"vm": vm.name, "as": how})


async def kill_service(stack: Facts) -> int:
    """SIGKILL API and reconciler; the stack starts them again. Return the process id."""
    return await kill_part(stack, "service")


async def kill_emulator(stack: Facts) -> int:
    """SIGKILL Azure; its machines run on. Return the process id."""
    return await kill_part(stack, "emulator")


async def kill_part(stack: Facts, name: str) -> int:
    """SIGKILL a part; the stack starts it again. Return the process id that it had."""
    process = part(stack, name)
    process.kill()
    await _gone(process)
    return process.pid


async def restart(stack: Facts, name: str, within: float = BACK_SECONDS) -> None:
    """End a part in order and wait until the stack has started it again."""
    process = part(stack, name)
    process.send_signal(_GENTLE.get(name, signal.SIGTERM))
    await _gone(process)
    await back(stack, name, process.pid, within)


async def back(stack: Facts, name: str, before: int, within: float = BACK_SECONDS) -> None:
    """Wait until a part runs with another process id than ``before``, and is ready."""
    ready = stack.state / "ready" / name

    def again() -> bool:
        try:
            now = part(stack, name).pid
            return now != before and ready.read_text() == str(now)
        except (NotThere, FileNotFoundError):
            return False

    if not await _until(again, within):
        raise NotThere(f"{name} did not come back within {within:.0f} s; see the stack's output")


async def pause_part(stack: Facts, name: str, seconds: float) -> None:
    """Stop a part and let it go on after: whoever calls it meanwhile waits."""
    await _paused([part(stack, name)], seconds)


async def take_away(stack: Facts, name: str, seconds: float) -> None:
    """Kill a part and keep the stack from starting it: whoever calls it is refused.

    Returns when it is back and ready.
    """
    process = part(stack, name)
    held = stack.state / HELD / name
    held.parent.mkdir(exist_ok=True)
    held.write_text(str(time.time() + seconds))
    process.kill()
    await _gone(process)
    await back(stack, name, process.pid, seconds + BACK_SECONDS)


async def arm_fault(stack: Facts, kind: str, **matching: object) -> str:
    """Plant one of Azure's faults; return its id. Kinds and members: `emulator/faults/planted.py`.

    ``count`` (the next N) or ``seconds`` (for so long) end it, otherwise `clear_faults` does;
    ``method``, ``path``, ``region`` and ``vm_size`` say which requests it meets.
    """
    return str((await ask(stack, "POST", "faults", {"kind": kind, **matching}))["id"])


async def faults(stack: Facts) -> list[dict[str, object]]:
    """The faults that are planted, with how often each has struck."""
    planted: list[dict[str, object]] = (await ask(stack, "GET", "faults"))["value"]
    return planted


async def clear_faults(stack: Facts, fault_id: str = "") -> None:
    """Take back one planted fault, or all."""
    await ask(stack, "DELETE", f"faults?id={fault_id}" if fault_id else "faults")


async def set_capacity(stack: Facts, region: str, vm_size: str, available: int | None) -> None:
    """So many more machines of this size can be had in the region; None: any number."""
    body = {"region": region, "vm_size": vm_size, "available": available}
    await ask(stack, "POST", "capacity", body)


async def _evict(stack: Facts, vm: Machine, *, notice: bool, lingers: bool = False) -> None:
    body = {"scale_set": vm.scale_set, "instance_id": vm.instance_id}
    await ask(stack, "POST", "evict", {**body, "notice": notice, "lingers": lingers})


async def _kill_one(vm: Machine, program: str) -> int:
    victim = _found(vm, program)[0]
    victim.kill()
    await _gone(victim)
    return victim.pid


def _found(vm: Machine, program: str = "") -> list[psutil.Process]:
    found = processes(vm, program)
    if not found:
        raise NotThere(f"nothing on {vm.name} runs {program or 'at all'} just now")
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
            continue  # it ended meanwhile


async def _gone(process: psutil.Process) -> None:
    """A killed process takes a moment, a part that is asked to end may take its own time."""
    if not await _until(lambda: not alive(process), BACK_SECONDS):
        raise NotThere(f"process {process.pid} does not end; see the stack's output")


async def _until(true: Callable[[], bool], within: float) -> bool:
    """Look until it is true, or too late."""
    latest = time.monotonic() + within
    while not true():
        if time.monotonic() > latest:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
