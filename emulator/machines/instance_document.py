"""The document behind /metadata/instance: what a VM reads about itself."""

from typing import Any

from emulator.core.catalog import catalog
from emulator.core.state import InstanceRow, ScaleSetRow


def document(scale_set: ScaleSetRow, vm: InstanceRow) -> dict[str, Any]:
    """All of it. Values are strings, and empty where there is nothing to say."""
    return {"compute": _compute(scale_set, vm), "network": _network(vm)}


def _compute(scale_set: ScaleSetRow, vm: InstanceRow) -> dict[str, Any]:
    tags = scale_set.model.get("tags") or {}
    profile = scale_set.profile
    image = _image(profile)
    return {
        "azEnvironment": "AzurePublicCloud",
        "additionalCapabilities": {"hibernationEnabled": "false"},
        "customData": "",  # Azure has stopped to show it
        "evictionPolicy": profile.get("evictionPolicy", "") if scale_set.spot else "",
        "extendedLocation": {"type": "", "name": ""},
        "host": {"id": ""},
        "hostGroup": {"id": ""},
        "isHostCompatibilityLayerVm": "false",
        "licenseType": profile.get("licenseType", ""),
        "location": scale_set.location,
        "name": scale_set.vm_name(vm),
        "offer": image["offer"],
        "osProfile": _os(scale_set, vm),
        "osType": "Linux",
        "physicalZone": f"{scale_set.location}-AZ{vm.zone}" if vm.zone else "",
        "placementGroupId": "" if scale_set.flexible else scale_set.unique_id,
        "plan": {"name": "", "product": "", "publisher": ""},
        "platformFaultDomain": "0",
        "platformSubFaultDomain": "",
        "platformUpdateDomain": "0",
        "priority": profile.get("priority", "Regular"),
        "provider": "Microsoft.Compute",
        "publicKeys": _keys(profile),
        "publisher": image["publisher"],
        "resourceGroupName": scale_set.group,
        "resourceId": scale_set.vm_resource_id(vm),
        "securityProfile": _security(profile.get("securityProfile") or {}),
        "sku": image["sku"],
        "storageProfile": _storage(scale_set, vm, image),
        "subscriptionId": scale_set.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
        "userData": profile.get("userData", ""),
        "version": image["version"],
        "virtualMachineScaleSet": {"id": scale_set.id if scale_set.flexible else ""},
        "vmId": vm.vm_id,
        "vmScaleSetName": scale_set.name,
        "vmSize": scale_set.vm_size,
        "zone": vm.zone,
    }


def _os(scale_set: ScaleSetRow, vm: InstanceRow) -> dict[str, str]:
    os_profile = scale_set.profile.get("osProfile") or {}
    password = _linux(scale_set.profile).get("disablePasswordAuthentication")
    return {
        "adminUsername": os_profile.get("adminUsername", ""),
        "computerName": scale_set.computer_name(vm),
        "disablePasswordAuthentication": _word(password),
    }


def _linux(profile: dict[str, Any]) -> dict[str, Any]:
    return (profile.get("osProfile") or {}).get("linuxConfiguration") or {}


def _security(security: dict[str, Any]) -> dict[str, str]:
    uefi = security.get("uefiSettings") or {}
    return {
        "encryptionAtHost": _word(security.get("encryptionAtHost")),
        "secureBootEnabled": _word(uefi.get("secureBootEnabled")),
        "securityType": security.get("securityType", ""),
        "virtualTpmEnabled": _word(uefi.get("vTpmEnabled")),
    }


def _image(profile: dict[str, Any]) -> dict[str, str]:
    reference = (profile.get("storageProfile") or {}).get("imageReference") or {}
    names = ("id", "offer", "publisher", "sku", "version", "communityGalleryImageId")
    image = {name: str(reference.get(name, "")) for name in (*names, "sharedGalleryImageId")}
    return image | {"exactVersion": str(reference.get("exactVersion", ""))}


def _storage(scale_set: ScaleSetRow, vm: InstanceRow, image: dict[str, str]) -> dict[str, Any]:
    storage = scale_set.profile.get("storageProfile") or {}
    disk = storage.get("osDisk") or {}
    data = storage.get("dataDisks") or []
    name = scale_set.vm_name(vm)
    size = catalog().size(scale_set.vm_size)
    temporary = size.temp_gib if size else 0
    return {
        "dataDisks": [_disk(d, f"{name}_disk{n + 2}") | _data(d, n) for n, d in enumerate(data)],
        "imageReference": image,
        "osDisk": _disk(disk, f"{name}_OsDisk_1") | {"osType": "Linux"},
        "resourceDisk": {"size": str(temporary * 1024 * 1024)},  # kB
    }


def _disk(disk: dict[str, Any], name: str) -> dict[str, Any]:
    managed = disk.get("managedDisk") or {}
    return {
        "caching": disk.get("caching", "None"),
        "createOption": disk.get("createOption", "FromImage"),
        "diffDiskSettings": {"option": (disk.get("diffDiskSettings") or {}).get("option", "")},
        "diskSizeGB": str(disk.get("diskSizeGB", "")),
        "encryptionSettings": {
            "enabled": "false",
            "diskEncryptionKey": {"secretUrl": "", "sourceVault": {"id": ""}},
            "keyEncryptionKey": {"keyUrl": "", "sourceVault": {"id": ""}},
        },
        "image": {"uri": ""},
        "managedDisk": {"id": "", "storageAccountType": managed.get("storageAccountType", "")},
        "name": disk.get("name", name),
        "vhd": {"uri": ""},
        "writeAcceleratorEnabled": _word(disk.get("writeAcceleratorEnabled")),
    }


def _data(disk: dict[str, Any], number: int) -> dict[str, str]:
    return {
        "bytesPerSecondThrottle": "",
        "diskCapacityBytes": "",
        "isSharedDisk": "false",
        "isUltraDisk": "false",
        "lun": str(disk.get("lun", number)),
        "opsPerSecondThrottle": "",
    }


def _keys(profile: dict[str, Any]) -> list[dict[str, str]]:
    keys = (_linux(profile).get("ssh") or {}).get("publicKeys") or []
    return [{"keyData": str(k.get("keyData", "")), "path": str(k.get("path", ""))} for k in keys]


def _word(flag: object) -> str:
    return "true" if flag is True else "false"


def _network(vm: InstanceRow) -> dict[str, Any]:
    addresses = [{"privateIpAddress": vm.address, "publicIpAddress": ""}]
    subnet = [{"address": vm.address.rpartition(".")[0] + ".0", "prefix": "24"}]
    return {
        "interface": [
            {
                "ipv4": {"ipAddress": addresses, "subnet": subnet},
                "ipv6": {"ipAddress": []},
                "macAddress": "000D3A" + vm.vm_id.replace("-", "")[:6].upper(),
            }
        ]
    }
