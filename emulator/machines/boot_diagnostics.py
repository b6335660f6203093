"""Boot diagnostics: URLs with a SAS of what a VM printed to its serial console, and the log behind.

The log is the VM's console. Without boot diagnostics Azure answers 409 (Azure/ARO-HCP, admin
server: serial console); a URL lives 1 to 1440 minutes, 120 by default (azure-rest-api-specs).
"""

import hashlib
import hmac
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import base_url, fabric_of
from emulator.compute.instances import find_instance
from emulator.core.errors import ArmError, invalid, not_allowed
from emulator.core.state import InstanceRow

RETRIEVE = "/retrieveBootDiagnosticsData"
BLOB = "/bootdiagnostics/{vm_id}/serialconsole.log"
MINUTES = "sasUriExpirationTimeInMinutes"
LONGEST, USUAL = 1440, 120


async def retrieve(request: Request) -> Response:
    """Give the URL of the serial log of a VM."""
    scale_set, instance = find_instance(request)
    minutes = request.query_params.get(MINUTES, str(USUAL))
    if not minutes.isdecimal() or not 1 <= int(minutes[:9]) <= LONGEST:
        raise invalid(f"The value of parameter {MINUTES} is invalid.", target=MINUTES)
    diagnostics = scale_set.profile.get("diagnosticsProfile") or {}
    if not (diagnostics.get("bootDiagnostics") or {}).get("enabled"):
        raise not_allowed(f"Boot diagnostics is not enabled for VM {scale_set.vm_name(instance)}.")
    expires = str(int(fabric_of(request).now()) + 60 * int(minutes))
    query = urlencode({"se": expires, "sp": "r", "sig": _signature(instance, expires)})
    url = f"{base_url(request)}{BLOB.format(vm_id=instance.vm_id)}?{query}"
    return JSONResponse({"serialConsoleLogBlobUri": url})


async def serial_log(request: Request) -> Response:
    """Show what the VM has printed so far; requires a SAS."""
    fabric, vm_id, query = fabric_of(request), request.path_params["vm_id"], request.query_params
    vm = next((i for _, i in fabric.instances() if i.vm_id == vm_id), None)
    expires = query.get("se", "")
    signature = query.get("sig", "").encode()
    signed = vm and hmac.compare_digest(_signature(vm, expires).encode(), signature)
    if vm is None or not signed or fabric.now() > int(expires):
        raise ArmError(
            403,
            "AuthenticationFailed",
            "Server failed to authenticate the request. Make sure the value of Authorization "
            "header is formed correctly including the signature.",
        )
    console = fabric.folder(vm) / "console.log"
    if not console.exists():
        raise ArmError(404, "BlobNotFound", "The specified blob does not exist.")
    return Response(console.read_bytes(), media_type="application/octet-stream")


def _signature(instance: InstanceRow, expires: str) -> str:
    return hmac.new(instance.token.encode(), expires.encode(), hashlib.sha256).hexdigest()
