"""What Azure refuses of disks, encryption and security types, by VM size and subscription.

The words are those of public reports: bosh-azure-cpi-release 674 (disk too large), Azure's
terraform-azurerm-avm-res-compute-virtualmachinescaleset 160 (placement), azure-cli 16788
(encryption at host) and 18355 (disk encryption set), skyplane 755 (security type). No report shows
the HTTP status of `NotSupported`: a conflict is a guess, and so are the words for placement groups.
"""

from typing import Any

from emulator.arm import registrations
from emulator.core.catalog import SizeOffer
from emulator.core.errors import ArmError, invalid
from emulator.core.state import ScaleSetRow
from emulator.fabric import Fabric

COMPUTE = "Microsoft.Compute"
AT_HOST = "EncryptionAtHost"
LARGEST = 2040  # GiB of an ephemeral OS disk


def check(fabric: Fabric, scale_set: ScaleSetRow, offer: SizeOffer) -> None:
    """Raise ArmError for what the size cannot hold or the subscription does not have."""
    registrations.check_provider(fabric, scale_set.subscription, COMPUTE)
    security = scale_set.profile.get("securityProfile") or {}
    disk = (scale_set.profile.get("storageProfile") or {}).get("osDisk") or {}
    trusted = security.get("securityType") == "TrustedLaunch"
    if trusted and not offer.size.trusted_launch:
        raise invalid(
            f"The VM size '{offer.size.name}' is not supported for creation of VMs and Virtual "
            "Machine Scale Set with 'TrustedLaunch' security type.",
            "BadRequest",
        )
    _encryption(fabric, scale_set, security, disk)
    _placement(disk, offer, reserved=1 if trusted else 0)
    group = (scale_set.model["properties"].get("proximityPlacementGroup") or {}).get("id")
    if group and str(group).lower() not in fabric.state.resources:
        raise _not_found("ProximityPlacementGroup", str(group))


def _encryption(
    fabric: Fabric, scale_set: ScaleSetRow, security: dict[str, Any], disk: dict[str, Any]
) -> None:
    registered = registrations.has_feature(fabric, scale_set.subscription, AT_HOST)
    if security.get("encryptionAtHost") and not registered:
        member = "securityProfile.encryptionAtHost"
        raise invalid(
            f"The property '{member}' is not valid because the '{COMPUTE}/{AT_HOST}' feature is "
            "not enabled for this subscription.",
            target=member,
        )
    named = ((disk.get("managedDisk") or {}).get("diskEncryptionSet") or {}).get("id")
    if not named:
        return
    found = fabric.state.resources.get(str(named).lower())
    if found is None or found.location != scale_set.location:
        raise _not_found("DiskEncryptionSet", str(named))


def _placement(disk: dict[str, Any], offer: SizeOffer, reserved: int) -> None:
    """Refuse a disk that the size lacks or that is too large; Azure keeps 1 GiB for a vTPM."""
    settings, size = disk.get("diffDiskSettings"), offer.size
    if not settings:
        return
    placement = settings.get("placement") or size.os_disks.partition(",")[0]
    if placement not in size.os_disks.split(","):
        raise _unsupported(
            f"The Diff Disk Placement of type '{placement}' is not supported for VM size "
            f"{size.name}."
        )
    most = min(size.temp_gib, LARGEST) - reserved
    if (disk.get("diskSizeGB") or 0) > most:
        raise _unsupported(
            f"OS disk of Ephemeral VM with size greater than {most} GB is not allowed for VM size "
            f"{size.name} when the DiffDiskPlacement is {placement}. Please refer to "
            "https://aka.ms/Ephemeral for more details."
        )


def _unsupported(message: str) -> ArmError:
    return ArmError(409, "NotSupported", message)


def _not_found(what: str, resource_id: str) -> ArmError:
    return invalid(f"{what} '{resource_id}' was not found.", "BadRequest")
