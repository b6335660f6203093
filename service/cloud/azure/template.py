"""The scale set to request from Azure: a pure function from spec and settings to ARM JSON.

Its shape is the only one with InfiniBand on ND sizes: Uniform, a single placement group, one fault
domain. That rules out priority mixes, capacity reservations and, with Spot, terminate
notifications.
"""

import base64
from dataclasses import dataclass, field
from typing import Any

from service.cloud.azure.policy import AzurePolicy, os_disk_placement
from service.cloud.provider import OWNER_TAG, Misconfigured
from service.domain.cloud.fleet import ScaleSetSpec
from service.domain.states import CapacityType

CUSTOM_DATA_LIMIT = 65535  # bytes, before base64
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AzureSettings:
    """Where scale sets go, and what all of them have in common."""

    subscription_id: str
    resource_group: str
    owner: str  # this deployment's name, the value of OWNER_TAG
    subnet_id: str  # "{region}" in it stands for the offering's region
    ssh_public_key: str  # Azure requires a login, although none is used
    admin_username: str = "rekindle"
    image: str = "microsoft-dsvm:ubuntu-hpc:2204:latest"  # or the id of a gallery image
    identity_id: str = ""  # user-assigned identity of the nodes, e.g. to pull the image
    policy: AzurePolicy = field(default_factory=AzurePolicy)


def scale_set_body(spec: ScaleSetSpec, settings: AzureSettings) -> Json:
    """Return the body of the PUT. Equal arguments give equal bodies, so it may be sent again."""
    body: Json = {
        "location": spec.offering.region,
        "tags": {**settings.policy.tags, **spec.tags, OWNER_TAG: settings.owner},
        "sku": {
            "name": spec.offering.vm_size,
            "tier": "Standard",
            "capacity": spec.instance_count,
        },
        "properties": {
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "platformFaultDomainCount": 1,
            "overprovision": False,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": _machine(spec, settings),
        },
    }
    if settings.identity_id:
        body["identity"] = {
            "type": "UserAssigned",
            "userAssignedIdentities": {settings.identity_id: {}},
        }
    if zone := settings.policy.zones.get(spec.offering.region):
        body["zones"] = [zone]
    if group := settings.policy.proximity_placement_group_id:
        body["properties"]["proximityPlacementGroup"] = _reference(group, spec)
    return body


def _machine(spec: ScaleSetSpec, settings: AzureSettings) -> Json:
    return {
        **_capacity(spec.offering.capacity_type),
        **_security(settings.policy),
        "storageProfile": {
            "imageReference": _image_reference(settings.image),
            "osDisk": _os_disk(spec, settings.policy),
        },
        "osProfile": _operating_system(spec, settings),
        "networkProfile": _network(spec, settings),
        # Without storageUri Azure keeps the serial logs itself (Microsoft Learn, "Azure boot
        # diagnostics": managed storage), and deletes them with the machines.
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }


def _security(policy: AzurePolicy) -> Json:
    """Return encryption at host and trusted launch, where the policy requires them."""
    profile: Json = {"encryptionAtHost": True} if policy.encryption_at_host else {}
    if policy.security_type:
        profile["securityType"] = policy.security_type
    if policy.security_type == "TrustedLaunch":
        profile["uefiSettings"] = {"vTpmEnabled": True, "secureBootEnabled": False}
    return {"securityProfile": profile} if profile else {}


def _os_disk(spec: ScaleSetSpec, policy: AzurePolicy) -> Json:
    placement = policy.os_disk_placement or os_disk_placement(spec.offering.vm_size)
    disk: Json = {
        "createOption": "FromImage",
        "caching": "ReadOnly",
        "diffDiskSettings": {"option": "Local", "placement": placement},
    }
    if policy.os_disk_gib:
        disk["diskSizeGB"] = policy.os_disk_gib
    if policy.disk_encryption_set_id:
        encryption = _reference(policy.disk_encryption_set_id, spec)
        disk["managedDisk"] = {"diskEncryptionSet": encryption}
    return disk


def _reference(resource_id: str, spec: ScaleSetSpec) -> Json:
    return {"id": resource_id.replace("{region}", spec.offering.region)}


def _capacity(capacity_type: CapacityType) -> Json:
    """Return Spot up to the on-demand price; ephemeral disks allow only the policy Delete."""
    if capacity_type is CapacityType.ON_DEMAND:
        return {"priority": "Regular"}
    return {
        "priority": "Spot",
        "evictionPolicy": "Delete",
        "billingProfile": {"maxPrice": -1},
    }


def _image_reference(image: str) -> Json:
    """Return a gallery image by its id, a marketplace image by "publisher:offer:sku:version"."""
    if image.startswith("/"):
        return {"id": image}
    parts = image.split(":")
    if len(parts) != 4:
        raise Misconfigured(
            f"Image {image!r} is neither publisher:offer:sku:version nor the id of a gallery image."
        )
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))


def _operating_system(spec: ScaleSetSpec, settings: AzureSettings) -> Json:
    user = settings.admin_username
    key = {"path": f"/home/{user}/.ssh/authorized_keys", "keyData": settings.ssh_public_key}
    return {
        "computerNamePrefix": _computer_name_prefix(spec.name),
        "adminUsername": user,
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [key]},
        },
        "customData": _custom_data(spec.cloud_init),
    }


def _computer_name_prefix(scale_set: str) -> str:
    """Return nine characters that no other scale set of the virtual network has.

    Azure's DNS resolves host names in the whole network, so two of a name hide each other. Nine, as
    az makes them for every scale set (azure-cli, create_vmss); for Linux Azure takes 58.
    The end of a scale set's name is random (service/domain/ids.py).
    """
    return f"rk{scale_set.lower()[-7:]}"


def _custom_data(cloud_init: str) -> str:
    data = cloud_init.encode()
    if len(data) > CUSTOM_DATA_LIMIT:
        raise Misconfigured(
            f"The nodes' cloud-init has {len(data)} bytes; Azure takes {CUSTOM_DATA_LIMIT}."
        )
    return base64.b64encode(data).decode()


def _network(spec: ScaleSetSpec, settings: AzureSettings) -> Json:
    subnet = _reference(settings.subnet_id, spec)
    address = {"name": "primary", "properties": {"primary": True, "subnet": subnet}}
    interface = {
        "name": "primary",
        "properties": {
            "primary": True,
            "enableAcceleratedNetworking": True,
            "ipConfigurations": [address],
        },
    }
    return {"networkInterfaceConfigurations": [interface]}
