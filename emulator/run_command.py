"""Run Command: a shell script in a VM, with its environment, bounded in time and output.

The script is a process of the VM and writes its end into the VM's folder, so that a restart of
the emulator loses none and runs none twice; it dies with the VM.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from emulator import operations, scale_set_actions, virtual_machines
from emulator.errors import invalid, missing, not_allowed
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, read_json
from emulator.instances import find_instance
from emulator.scale_set_form import SCRIPT, formed
from emulator.state import Instance, Operation, ScaleSet

KIND = "runCommand"
LONGEST = 90 * 60  # seconds, as Azure has it
KEPT = 4096  # bytes of each stream; the last ones
PAUSE = 0.2  # seconds between two looks at a running script
NOT_RUNNING = "The operation requires the VM to be running (or set to run)."
# The pipes keep the end of each stream; `ended` is written when both are over.
FRAME = f"""
{{ timeout -k 1 "$1" "$2/script" 2>&1 1>&3 3>&- | tail -c {KEPT} > "$2/stderr"
}} 3>&1 | tail -c {KEPT} > "$2/stdout"
: > "$2/ended"
"""
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


async def on_instance(request: Request) -> Response:
    """Run a script in an instance of a scale set."""
    return await _run(request, *find_instance(request))


async def on_virtual_machine(request: Request) -> Response:
    """Run a script in a virtual machine of a Flexible scale set."""
    return await _run(request, *virtual_machines.find_vm(request))


def carry_out(fabric: Fabric, now: float) -> bool:
    """Start the scripts that are due, and answer for those that ended."""
    due = fabric.due((KIND,))
    for operation in due:
        scale_set = fabric.state.scale_sets.get(operation.target)
        instance = scale_set and scale_set.instances.get(operation.instance_ids[0])
        if not scale_set or not instance or not fabric.running(instance):
            error = {"code": "OperationNotAllowed", "message": NOT_RUNNING}
            operation.end(now, error)
        else:
            _advance(fabric, operation, instance, now)
        if scale_set and operation.ended_at is not None:
            scale_set_actions.release(scale_set, operation)
    return bool(due)


async def _run(request: Request, scale_set: ScaleSet, instance: Instance) -> Response:
    fabric, body = fabric_of(request), formed(await read_json(request), SCRIPT)
    if not body.get("commandId"):
        raise missing("commandId")
    if body["commandId"].lower() != "runshellscript":
        raise invalid(
            f"The entity was not found: no command '{body['commandId']}' for Linux. Use "
            "RunShellScript.",
            target="commandId",
        )
    if fabric.settings.hollow:
        raise not_allowed("The VMs of this emulator run nothing: start it without --hollow.")
    if not fabric.running(instance):
        raise not_allowed(NOT_RUNNING)
    scale_set_actions.overtake(fabric, scale_set, (instance.instance_id,))
    operation = operations.begin(
        fabric,
        KIND,
        scale_set,
        seconds=0.0,
        instance_ids=(instance.instance_id,),
        alone=True,
    )
    operation.input = {
        "script": "\n".join(body.get("script") or []) + "\n",
        "parameters": dict(_parameter(p) for p in body.get("parameters") or []),
    }
    instance.busy = KIND
    fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, operation))


def _parameter(given: dict[str, Any]) -> tuple[str, str]:
    """A parameter is an environment variable of the script."""
    name, value = given.get("name") or "", given.get("value") or ""
    if (
        not NAME.fullmatch(name)
        or "\0" in value
        or value != value.encode(errors="replace").decode()
    ):
        raise invalid(f"The parameter '{name}' cannot be given to a script.", target="parameters")
    return name, value


def _advance(fabric: Fabric, operation: Operation, instance: Instance, now: float) -> None:
    folder = fabric.folder(instance)
    place = folder / "commands" / operation.id
    if not (place / "begun").exists():
        if not (folder / "environment.json").exists():
            return  # it boots still
        _start(folder, place, operation.input)
    if (place / "ended").exists() or now > operation.accepted_at + LONGEST + 2 * PAUSE:
        operation.output = _output(place)
        operation.end(now)
    else:
        operation.due_at = now + PAUSE


def _start(folder: Path, place: Path, wanted: dict[str, Any]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    script = place / "script"
    text = wanted["script"]
    text = text if text.startswith("#!") else f"#!/bin/sh\n{text}"
    script.write_bytes(text.encode(errors="replace"))
    script.chmod(0o700)
    (place / "begun").touch()
    environment = json.loads((folder / "environment.json").read_text())
    subprocess.Popen(
        ["/bin/sh", "-c", f"({FRAME}) &", "sh", str(LONGEST), str(place)],
        cwd=folder,
        env={**wanted["parameters"], **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).wait()


def _output(place: Path) -> dict[str, Any]:
    streams = [_text(place / name) for name in ("stdout", "stderr")]
    message = f"Enable succeeded: \n[stdout]\n{streams[0]}\n[stderr]\n{streams[1]}"
    status = {
        "code": "ProvisioningState/succeeded",
        "level": "Info",
        "displayStatus": "Provisioning succeeded",
        "message": message,
    }
    return {"value": [status]}


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace") if file.exists() else ""
