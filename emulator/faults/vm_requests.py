"""What a caller may do to one VM: `/_emulator/partition`, `disk`, `crash`, `events`.

Each answers when it is done: the VM's init has obeyed, or the VM is dead.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_order
from emulator.core.agenda import Machine
from emulator.core.errors import ArmError, invalid, not_allowed, refuse_unknown
from emulator.fabric import Fabric
from emulator.faults import harm, slow_disk
from emulator.faults.harm import Harm
from emulator.machines import maintenance, processes

LISTED = "'vm' is a name or a vmId; GET /_emulator/virtualMachines lists them."
OBEY_SECONDS = 10.0
MAX_SECONDS = 1e9  # 31 years; dates of far more cannot be written down
POLL_SECONDS = 0.005


async def partition(request: Request) -> Response:
    """Cut a VM off from what matches ``to`` (HOST or HOST:PORT with *), or mend that.

    ``mode`` drop: what is under way hangs, and goes on when mended. reset: it breaks off,
    and what is new is refused. Mending without ``to`` mends everything.
    """
    body = await read_order(request, "vm", "cut", "to", "mode")
    cut, address, mode = body.get("cut", True), body.get("to"), body.get("mode", "drop")
    if not isinstance(cut, bool) or mode not in harm.MODES or not isinstance(address, str | None):
        raise invalid("'cut' must be true or false, 'mode' drop or reset, 'to' a host pattern.")

    def change(done: Harm) -> None:
        if cut:
            done.cuts[address or "*"] = mode
        else:
            done.cuts = {p: m for p, m in done.cuts.items() if address not in (None, p)}

    done = await _do(fabric_of(request), body, change, proxied=True)
    return JSONResponse({"vm": body["vm"], "cuts": done.cuts})


async def disk(request: Request) -> Response:
    """Limit a VM's writes to its disk to ``bytes_per_second``; null: as fast as it goes."""
    body = await read_order(request, "vm", "bytes_per_second")
    limit = body.get("bytes_per_second")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise invalid("'bytes_per_second' must be a whole number of 1 or more, or null.")
    if not slow_disk.possible():
        raise _cannot("only Linux tells how much a process has written")

    def change(done: Harm) -> None:
        done.write_limit = limit or 0

    await _do(fabric_of(request), body, change)
    return JSONResponse({"vm": body["vm"], "bytes_per_second": limit})


async def crash(request: Request) -> Response:
    """Kill a VM without notice; its instance stays.

    ``as`` panic: Azure sees it running still. shutdown: its system ended, Azure sees it
    stopped. hardware: Azure sees it, shows Reboot as Started and brings it up elsewhere.
    """
    fabric, body = fabric_of(request), await read_order(request, "vm", "as")
    scale_set, instance = _running(fabric, body)
    match body.get("as", "panic"):
        case "panic":
            processes.note_crash(fabric.folder(instance))
        case "shutdown":
            pass
        case "hardware":
            maintenance.host_failed(fabric, instance, fabric.now())
            fabric.changed()
        case other:
            raise invalid(f"'as' must be panic, shutdown or hardware, not {other!r}.")
    folder, url = fabric.folder(instance), fabric.metadata_url(instance)
    await asyncio.to_thread(processes.kill, folder, url, wipe=False)
    return JSONResponse({"crashed": scale_set.vm_name(instance)})


async def announce(request: Request) -> Response:
    """Have the platform do something to a VM: ``kind`` is Freeze, Reboot or Redeploy.

    With at least Azure's own ``notice`` (seconds); ``duration`` is how long a Freeze lasts.
    """
    fabric = fabric_of(request)
    body = await read_order(request, "vm", "kind", "notice", "duration")
    scale_set, instance = find_vm(fabric, body.get("vm"))
    notice, duration = body.get("notice"), body.get("duration")
    if not isinstance(notice, int | float | None) or not isinstance(duration, int | None):
        raise invalid("'notice' and 'duration' are seconds.")
    if max(notice or 0, duration or 0) > MAX_SECONDS or (duration or 0) < 0:
        raise invalid(f"'notice' and 'duration' are 0 to {MAX_SECONDS:.0f} seconds.")
    event = maintenance.announce(
        fabric.state,
        scale_set,
        instance,
        str(body.get("kind", "")),
        fabric.now(),
        notice=notice,
        seconds=duration,
    )
    fabric.changed()
    return JSONResponse(event.row(scale_set.vm_name(instance)), status_code=201)


async def call_off(request: Request) -> Response:
    """Take back what is announced to ?vm= and has not begun, an eviction too."""
    fabric = fabric_of(request)
    refuse_unknown(request.query_params, ("vm",), "parameter")
    _, instance = find_vm(fabric, request.query_params.get("vm"))
    count = maintenance.cancel_announced(fabric.state, instance)
    fabric.changed()
    return JSONResponse({"called_off": count})


def find_vm(fabric: Fabric, name: object) -> Machine:
    """Return the VM with this name or id, or raise ArmError."""
    target = str(name or "").lower()
    for scale_set, instance in fabric.instances():
        if target in (scale_set.vm_name(instance).lower(), instance.vm_id.lower()):
            return scale_set, instance
    raise ArmError(404, "NotFound", f"There is no VM '{name}'. {LISTED}")


async def _do(
    fabric: Fabric, body: dict[str, Any], change: Callable[[Harm], None], *, proxied: bool = False
) -> Harm:
    """Change what is done to a VM, and return when its init has obeyed."""
    _, instance = _running(fabric, body)
    folder = fabric.folder(instance)
    if proxied and not json.loads((folder / "vm.json").read_text())["proxied"]:
        raise _cannot("it was booted without --proxies; start the emulator with it, then the VM")
    done = harm.read(folder)
    change(done)
    harm.write(folder, done)
    pid = processes.init_pid(folder)
    if pid is not None:
        harm.notify_vm(pid)
        await _until(lambda: harm.obeyed(folder) >= done.change or not processes.alive(folder))
    return done


async def _until(true: Callable[[], bool]) -> None:
    clock = asyncio.get_running_loop().time
    latest = clock() + OBEY_SECONDS
    while not true():
        if clock() > latest:
            raise _cannot(f"its init has not obeyed within {OBEY_SECONDS:.0f} s")
        await asyncio.sleep(POLL_SECONDS)


def _running(fabric: Fabric, body: dict[str, Any]) -> Machine:
    scale_set, instance = find_vm(fabric, body.get("vm"))
    if fabric.settings.hollow:
        raise _cannot("VMs of an emulator with --hollow run nothing")
    if not fabric.running(instance):
        raise _cannot("it does not run")
    return scale_set, instance


def _cannot(why: str) -> ArmError:
    return not_allowed(f"This cannot be done to the VM: {why}.")
