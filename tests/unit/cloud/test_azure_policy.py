"""The members that Azure policies ask for, in the scale sets that we ask for."""

import re
from dataclasses import replace
from typing import Any

import pytest

from service.cloud.azure.policy import AzurePolicy, os_disk_placement
from service.cloud.azure.template import scale_set_body
from tests.unit.cloud.test_azure_template import SETTINGS, SPEC, SPOT_BODY

IN_COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
ENCRYPTION = f"{IN_COMPUTE}/diskEncryptionSets/keys-{{region}}"
GROUP = f"{IN_COMPUTE}/proximityPlacementGroups/near-{{region}}"
MACHINE = "properties.virtualMachineProfile"
OS_DISK = f"{MACHINE}.storageProfile.osDisk"


def body(**members: Any) -> dict[str, Any]:  # noqa: ANN401 - members of a policy
    """Return the scale set that is requested from Azure under this policy."""
    return scale_set_body(SPEC, replace(SETTINGS, policy=AzurePolicy.model_validate(members)))


def at(value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return the member at a dotted path; None if it is missing."""
    for name in path.split("."):
        value = (value or {}).get(name)
    return value


@pytest.mark.parametrize(
    ("members", "path", "value"),
    [
        ({"tags": {"cost-centre": "42"}}, "tags.cost-centre", "42"),
        ({"zones": {"swedencentral": "3"}}, "zones", ["3"]),
        ({"encryption_at_host": True}, f"{MACHINE}.securityProfile.encryptionAtHost", True),
        ({"security_type": "Standard"}, f"{MACHINE}.securityProfile", {"securityType": "Standard"}),
        (
            {"security_type": "TrustedLaunch"},
            f"{MACHINE}.securityProfile.uefiSettings",
            {"vTpmEnabled": True, "secureBootEnabled": False},
        ),
        (
            {"disk_encryption_set_id": ENCRYPTION},
            f"{OS_DISK}.managedDisk.diskEncryptionSet.id",
            f"{IN_COMPUTE}/diskEncryptionSets/keys-swedencentral",
        ),
        (
            {"proximity_placement_group_id": GROUP},
            "properties.proximityPlacementGroup.id",
            f"{IN_COMPUTE}/proximityPlacementGroups/near-swedencentral",
        ),
        ({"os_disk_gib": 128}, f"{OS_DISK}.diskSizeGB", 128),
        ({"os_disk_placement": "CacheDisk"}, f"{OS_DISK}.diffDiskSettings.placement", "CacheDisk"),
    ],
)
def test_each_member_is_where_azure_wants_it_and_equal_policies_give_equal_bodies(
    members: dict[str, Any], path: str, value: object
) -> None:
    assert at(SPOT_BODY, path) != value
    assert at(body(**members), path) == value
    assert body(**members) == body(**members)


def test_without_a_policy_nothing_is_added() -> None:
    assert body() == SPOT_BODY


def test_machines_in_a_region_without_a_zone_are_asked_for_in_any() -> None:
    assert "zones" not in body(zones={"eastus": "1"})


@pytest.mark.parametrize(
    ("size", "placement"),
    [
        ("Standard_ND96amsr_A100_v4", "ResourceDisk"),
        ("Standard_ND96isr_H100_v5", "ResourceDisk"),
        ("Standard_ND96isr_H200_v5", "ResourceDisk"),
        ("Standard_ND128isr_NDR_GB200_v6", "NvmeDisk"),
        ("Standard_NC128ds_xl_RTXPRO6000BSE_v6", "NvmeDisk"),
        ("Standard_D8ds_v6", "NvmeDisk"),
        ("Standard_ND128isr_v10", "NvmeDisk"),
    ],
)
def test_the_os_disk_lies_on_the_disk_that_the_size_has(size: str, placement: str) -> None:
    assert os_disk_placement(size) == placement


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Invalid JSON"),
        ('{"zone": "1"}', "zone: Extra inputs"),
        ('{"zones": {"eastus": "7"}}', "zones.eastus: Input should be '1', '2' or '3'"),
        ('{"tags": {"Rekindle-Owner": "me"}}', "'Rekindle-Owner': names that begin with rekindle-"),
        ('{"tags": {"a/b": "c"}}', "tags.a/b"),
        ('{"disk_encryption_set_id": "keys"}', "disk_encryption_set_id: String should match"),
        ('{"os_disk_gib": 2041}', "os_disk_gib: Input should be less than or equal to 2040"),
        ('{"security_type": "Trusted"}', "security_type: Input should be 'Standard' or"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_the_member_named(
    text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        AzurePolicy.parse(text)
