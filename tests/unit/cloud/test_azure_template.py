"""The scale sets that we ask Azure for, and the members that Azure policies add."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.mgmt.compute import models
from hypothesis import given
from hypothesis import strategies as st

from service.cloud.azure.policy import AzurePolicy, os_disk_placement
from service.cloud.azure.template import CUSTOM_DATA_LIMIT, AzureSettings, scale_set_body
from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, OWNER_TAG, Misconfigured
from service.domain.cloud.fleet import Offering, ScaleSetSpec, scale_set_name
from service.domain.states import CapacityType

SETTINGS = AzureSettings(
    subscription_id="00000000-0000-0000-0000-000000000001",
    resource_group="rekindle",
    owner="production",
    subnet_id="/networks/rekindle-{region}/subnets/nodes",
    ssh_public_key="ssh-ed25519 AAAA somebody",
    identity_id="/identities/node",
)
SPOT = Offering(
    region="swedencentral", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
)
SPEC = ScaleSetSpec(
    name="rk-01jd8m4x9g5v0c3k2n7p6q8r1s",
    offering=SPOT,
    instance_count=2,
    cloud_init="#cloud-config\n{}\n",
    tags={ATTEMPT_TAG: "att-1", JOB_TAG: "ftjob-1"},
)

SPOT_BODY = {
    "location": "swedencentral",
    "tags": {
        "rekindle-attempt": "att-1",
        "rekindle-job": "ftjob-1",
        "rekindle-owner": "production",
    },
    "sku": {"name": "Standard_ND96amsr_A100_v4", "tier": "Standard", "capacity": 2},
    "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/identities/node": {}}},
    "properties": {
        "orchestrationMode": "Uniform",
        "singlePlacementGroup": True,
        "platformFaultDomainCount": 1,
        "overprovision": False,
        "upgradePolicy": {"mode": "Manual"},
        "virtualMachineProfile": {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": -1},
            "storageProfile": {
                "imageReference": {
                    "publisher": "microsoft-dsvm",
                    "offer": "ubuntu-hpc",
                    "sku": "2204",
                    "version": "latest",
                },
                "osDisk": {
                    "createOption": "FromImage",
                    "caching": "ReadOnly",
                    "diffDiskSettings": {"option": "Local", "placement": "ResourceDisk"},
                },
            },
            "osProfile": {
                "computerNamePrefix": "rkp6q8r1s",
                "adminUsername": "rekindle",
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {
                        "publicKeys": [
                            {
                                "path": "/home/rekindle/.ssh/authorized_keys",
                                "keyData": "ssh-ed25519 AAAA somebody",
                            }
                        ]
                    },
                },
                "customData": "I2Nsb3VkLWNvbmZpZwp7fQo=",
            },
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {
                        "name": "primary",
                        "properties": {
                            "primary": True,
                            "enableAcceleratedNetworking": True,
                            "ipConfigurations": [
                                {
                                    "name": "primary",
                                    "properties": {
                                        "primary": True,
                                        "subnet": {
                                            "id": "/networks/rekindle-swedencentral/subnets/nodes"
                                        },
                                    },
                                }
                            ],
                        },
                    }
                ]
            },
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        },
    },
}

specs = st.builds(
    ScaleSetSpec,
    name=st.just("rk-1"),
    offering=st.builds(
        Offering,
        region=st.sampled_from(["eastus", "westus2"]),
        vm_size=st.sampled_from(["Standard_ND96amsr_A100_v4", "Standard_D2s_v5"]),
        capacity_type=st.sampled_from(CapacityType),
    ),
    instance_count=st.integers(1, 100),
    cloud_init=st.text(max_size=200),
    tags=st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
)


def test_a_spot_set_has_the_shape_that_infiniband_wants() -> None:
    assert scale_set_body(SPEC, SETTINGS) == SPOT_BODY


def test_an_on_demand_set_is_regular_and_has_no_price_limit() -> None:
    offering = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
    machine = _machine(replace(SPEC, offering=offering))

    assert machine["priority"] == "Regular"
    assert not {"evictionPolicy", "billingProfile"} & set(machine)


def test_an_image_may_be_one_of_a_gallery() -> None:
    settings = replace(SETTINGS, image="/subscriptions/s/galleries/g/images/node/versions/1")
    machine = scale_set_body(SPEC, settings)["properties"]["virtualMachineProfile"]

    assert machine["storageProfile"]["imageReference"] == {"id": settings.image}


def test_an_image_of_no_known_form_is_refused() -> None:
    with pytest.raises(Misconfigured, match="publisher:offer:sku:version"):
        scale_set_body(SPEC, replace(SETTINGS, image="ubuntu"))


def test_cloud_init_beyond_what_azure_takes_is_refused() -> None:
    with pytest.raises(Misconfigured, match="65535"):
        scale_set_body(replace(SPEC, cloud_init="x" * (CUSTOM_DATA_LIMIT + 1)), SETTINGS)


@given(spec=specs)
def test_every_member_is_one_that_azure_knows(spec: ScaleSetSpec) -> None:
    model = models.VirtualMachineScaleSet(scale_set_body(spec, SETTINGS))

    assert list(_unknown_members(model)) == []


@given(spec=specs)
def test_what_azure_refuses_beside_spot_and_one_placement_group_is_never_there(
    spec: ScaleSetSpec,
) -> None:
    members = set(_members(scale_set_body(spec, SETTINGS)))

    assert not members & {
        "priorityMixPolicy",
        "capacityReservation",
        "scheduledEventsProfile",
        "terminateNotificationProfile",
        "automaticRepairsPolicy",
        "adminPassword",
        "zones",
    }


@given(spec=specs)
def test_the_owner_is_always_tagged_and_the_same_spec_is_the_same_body(spec: ScaleSetSpec) -> None:
    body = scale_set_body(spec, SETTINGS)

    assert body["tags"][OWNER_TAG] == "production"
    assert body == scale_set_body(spec, SETTINGS)
    assert base64.b64decode(_machine(spec)["osProfile"]["customData"]).decode() == spec.cloud_init
    assert len(_machine(spec)["osProfile"]["computerNamePrefix"]) <= 9


def test_two_scale_sets_do_not_share_host_names() -> None:
    first, second = ("att-01jd8m4x9g5v0c3k2n7p6q8r1s", "att-01jd8m4x9g5v0c3k2n7p6q8r1t")
    specs = [replace(SPEC, name=scale_set_name(attempt)) for attempt in (first, second)]

    assert len({_machine(spec)["osProfile"]["computerNamePrefix"] for spec in specs}) == 2


def _machine(spec: ScaleSetSpec) -> dict[str, Any]:
    machine: dict[str, Any] = scale_set_body(spec, SETTINGS)["properties"]["virtualMachineProfile"]
    return machine


def _unknown_members(model: Any) -> Iterator[str]:  # noqa: ANN401 - any of the SDK's models
    """Members that the SDK's generated models do not have."""
    names = {field._rest_name: name for name, field in model._attr_to_rest_field.items()}
    for member in model:
        if member not in names:
            yield f"{type(model).__name__}.{member}"
            continue
        value = getattr(model, names[member])
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "_attr_to_rest_field"):
                yield from _unknown_members(inner)


def _members(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _members(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _members(inner)


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
        ({"security_type": "TrustedLaunch"}, f"{MACHINE}.securityProfile.uefiSettings",
         {"vTpmEnabled": True, "secureBootEnabled": False}),
        ({"disk_encryption_set_id": ENCRYPTION}, f"{OS_DISK}.managedDisk.diskEncryptionSet.id",
         f"{IN_COMPUTE}/diskEncryptionSets/keys-swedencentral"),
        ({"proximity_placement_group_id": GROUP}, "properties.proximityPlacementGroup.id",
         f"{IN_COMPUTE}/proximityPlacementGroups/near-swedencentral"),
        ({"os_disk_gib": 128}, f"{OS_DISK}.diskSizeGB", 128),
        ({"os_disk_placement": "CacheDisk"}, f"{OS_DISK}.diffDiskSettings.placement", "CacheDisk"),
    ],
)  # fmt: skip
def test_each_member_is_where_azure_wants_it_and_equal_policies_give_equal_bodies(
    members: dict[str, Any], path: str, value: object
) -> None:
    assert at(SPOT_BODY, path) != value
    assert at(body(**members), path) == value
    assert body(**members) == body(**members)


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
    ("text", "expected"),
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
    text: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        AzurePolicy.parse(text)
