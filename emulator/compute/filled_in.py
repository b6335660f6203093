"""What Azure adds to what a client wrote: the profile of a scale set, and of each of its VMs.

From the examples of azure-rest-api-specs, Microsoft.Compute 2025-04-01: the scale set's from
VirtualMachineScaleSet_Create_WithSkuProfile, a VM's from
VirtualMachineScaleSetVM_Get_WithResilientVMDeletionStatus. Nothing of it is stored.
"""

from typing import Any

from emulator.compute import images
from emulator.core.state import InstanceRow, ScaleSetRow

Json = dict[str, Any]
CARDS = "networkInterfaceConfigurations"
CARD = {
    "enableAcceleratedNetworking": False,
    "disableTcpStateTracking": False,
    "dnsSettings": {"dnsServers": []},
    "enableIPForwarding": False,
}
ADDRESS = {"privateIPAddressVersion": "IPv4"}
LINUX_PART = "linuxConfiguration"
LINUX = {
    "provisionVMAgent": True,
    "patchSettings": {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"},
    "enableVMAgentPlatformUpdates": True,
}
SYSTEM = {"secrets": [], "allowExtensionOperations": True, "requireGuestProvisionSignal": True}


def profile(vm_profile: Json) -> Json:
    """Return a copy of a virtual machine profile as a scale set shows it."""
    filled = dict(vm_profile)
    if os_profile := vm_profile.get("osProfile"):
        filled["osProfile"] = {**SYSTEM, **os_profile, **_configuration(vm_profile)}
    if vm_profile.get("storageProfile"):
        disk = {"osType": "Linux", **(vm_profile["storageProfile"].get("osDisk") or {})}
        filled["storageProfile"] = {**vm_profile["storageProfile"], "osDisk": disk}
    if interfaces := cards(vm_profile):
        filled["networkProfile"] = {**vm_profile["networkProfile"], CARDS: interfaces}
    return filled


def cards(vm_profile: Json) -> list[Json]:
    """Return the network interfaces of a profile."""
    rows = (vm_profile.get("networkProfile") or {}).get(CARDS) or []
    return [{**row, "properties": _card(row.get("properties") or {})} for row in rows]


def system(vm_profile: Json, computer_name: str) -> Json:
    """Return the osProfile of one VM."""
    os_profile = vm_profile.get("osProfile") or {}
    users = {k: os_profile[k] for k in ("adminUsername",) if k in os_profile}
    return {"computerName": computer_name, **users, **SYSTEM, **_configuration(vm_profile)}


def storage(scale_set: ScaleSetRow, vm: InstanceRow) -> Json:
    """Return the storageProfile of one VM: its disks have names and ids."""
    storage_profile = scale_set.profile.get("storageProfile") or {}
    image = dict(storage_profile.get("imageReference") or {})
    if version := image.get("version"):
        image["exactVersion"] = images.VERSION if version == "latest" else version
    data = enumerate(storage_profile.get("dataDisks") or [])
    return {
        **storage_profile,
        **({"imageReference": image} if image else {}),
        "osDisk": {
            "osType": "Linux",
            "createOption": "FromImage",
            "diskSizeGB": images.OS_DISK_GIB,
            **_disk(scale_set, vm, storage_profile.get("osDisk") or {}, "OsDisk_1"),
        },
        "dataDisks": [_disk(scale_set, vm, d, f"disk{n + 2}") | {"toBeDetached": False}
                      for n, d in data],
        "diskControllerType": storage_profile.get("diskControllerType") or "SCSI",
    }  # fmt: skip


def _disk(scale_set: ScaleSetRow, vm: InstanceRow, disk: Json, kind: str) -> Json:
    owner = scale_set.vm_name(vm)
    owner = owner if scale_set.flexible else f"{scale_set.name}_{owner}"
    name = f"{owner}_{kind}_{vm.vm_id.replace('-', '')}"
    group = scale_set.id.partition("/providers/")[0]
    managed = {"id": f"{group}/providers/Microsoft.Compute/disks/{name}"}
    return {"name": name, **disk, "managedDisk": {**(disk.get("managedDisk") or {}), **managed}}


def _card(card: Json) -> Json:
    rows = card.get("ipConfigurations") or []
    addresses = [{**r, "properties": ADDRESS | (r.get("properties") or {})} for r in rows]
    return {**CARD, **card, "ipConfigurations": addresses}


def _configuration(vm_profile: Json) -> Json:
    """Return the part of an osProfile that is the system's own."""
    return {LINUX_PART: {**LINUX, **((vm_profile.get("osProfile") or {}).get(LINUX_PART) or {})}}
