"""Governed subscriptions: what the emulator refuses as Azure does, through our own adapter.

The cases are public reports: azure-cli 16788 and terraform-provider-azurerm 17185 (encryption at
host), terraform-azurerm-avm-res-compute-virtualmachinescaleset 160 and bosh-azure-cpi-release 674
(placement and size of the OS disk), azure-cli 18355 (disk encryption set), AzureTRE 2890 (tags).
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from service.cloud.azure.adapter import AzureCloud
from service.cloud.azure.policy import AzurePolicy
from service.cloud.azure.template import AzureSettings
from service.cloud.provider import Misconfigured
from service.domain.cloud.fleet import Offering, ScaleSetSpec
from service.domain.states import CapacityType
from tests.contract.emulated import credential
from tests.emulated.process import GROUP, SUBSCRIPTION, VERSION, Emulator

IN_COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
KEYS = f"{IN_COMPUTE}/diskEncryptionSets/keys-{{region}}"
NEAR = f"{IN_COMPUTE}/proximityPlacementGroups/near-{{region}}"
FEATURE = (
    f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Features/providers/Microsoft.Compute"
    "/features/EncryptionAtHost"
)
ND, NC = "Standard_ND96amsr_A100_v4", "Standard_NC24ads_A100_v4"
SETTINGS = AzureSettings(
    subscription_id=SUBSCRIPTION,
    resource_group=GROUP,
    owner="test",
    subnet_id="/networks/rekindle-{region}/subnets/nodes",
    ssh_public_key="ssh-ed25519 AAAA somebody",
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator whose machines run nothing."""
    flags = ("--create-seconds", "0", "--delete-seconds", "0", "--hollow", "--spot-quota", "9600")
    azure_emulator = Emulator(tmp_path_factory.mktemp("azure"), *flags)
    azure_emulator.make_group()
    yield azure_emulator
    azure_emulator.stop()


@pytest.fixture
async def cloud(emulator: Emulator) -> AsyncIterator[AzureCloud]:
    azure_cloud = AzureCloud(
        SETTINGS, credential(emulator), base_url=emulator.arm_url, ca_path=emulator.ca
    )
    yield azure_cloud
    await azure_cloud.close()


def under(cloud: AzureCloud, **members: object) -> AzureCloud:
    """Put the adapter under this policy and return it."""
    cloud._settings = replace(SETTINGS, policy=AzurePolicy.model_validate(members))
    return cloud


def spec(name: str, size: str = ND, region: str = "eastus") -> ScaleSetSpec:
    """One Spot machine."""
    offering = Offering(region=region, vm_size=size, capacity_type=CapacityType.SPOT)
    return ScaleSetSpec(
        name=name, offering=offering, instance_count=1, cloud_init="#cloud-config\n", tags={}
    )


@pytest.mark.parametrize(
    ("members", "size", "code", "message"),
    [
        ({"os_disk_placement": "CacheDisk"}, ND, "NotSupported", "Placement of type 'CacheDisk'"),
        ({"os_disk_placement": "NvmeDisk"}, ND, "NotSupported", "os_disk_placement or os_disk_gib"),
        ({"os_disk_gib": 65}, NC, "NotSupported", "greater than 64 GB is not allowed"),
        ({"os_disk_gib": 64, "security_type": "TrustedLaunch"}, NC, "NotSupported",
         "greater than 63 GB is not allowed"),
        ({"security_type": "TrustedLaunch"}, ND, "BadRequest", "'TrustedLaunch' security type"),
        ({"zones": {"eastus": "3"}}, ND, "AvailabilityZoneNotSupported", "zone(s) '3'"),
        ({"disk_encryption_set_id": KEYS}, ND, "BadRequest", "keys-eastus' was not found"),
        ({"proximity_placement_group_id": NEAR}, ND, "BadRequest", "near-eastus' was not found"),
        ({"encryption_at_host": True}, ND, "InvalidParameter",
         "az feature register --namespace Microsoft.Compute --name EncryptionAtHost"),
    ],
)  # fmt: skip
async def test_what_the_subscription_or_the_size_lacks_is_refused_with_what_to_do(
    cloud: AzureCloud, members: dict[str, object], size: str, code: str, message: str
) -> None:
    with pytest.raises(Misconfigured) as error:
        await under(cloud, **members).create(spec("rk-refused", size))

    assert error.value.code == code
    assert message in str(error.value)


async def test_a_policy_that_the_subscription_can_keep_is_kept(
    emulator: Emulator, cloud: AzureCloud
) -> None:
    policy: dict[str, Any] = {
        "tags": {"cost-centre": "42"},
        "zones": {"westus2": "3"},
        "encryption_at_host": True,
        "disk_encryption_set_id": KEYS,
        "proximity_placement_group_id": NEAR,
        "security_type": "Standard",
        "os_disk_gib": 128,
    }
    with emulator.signed_in() as arm:
        for resource in (KEYS, NEAR):
            url = resource.replace("{region}", "westus2") + VERSION
            arm.put(url, json={"location": "westus2"}).raise_for_status()
        arm.post(f"{FEATURE}/register{VERSION}").raise_for_status()
        await under(cloud, **policy).create(spec("rk-kept", region="westus2"))
        scale_set_json = arm.get(f"{IN_COMPUTE}/virtualMachineScaleSets/rk-kept{VERSION}").json()

    profile = scale_set_json["properties"]["virtualMachineProfile"]
    assert scale_set_json["tags"] == {"cost-centre": "42", "rekindle-owner": "test"}
    assert scale_set_json["zones"] == ["3"]
    assert profile["securityProfile"] == {"encryptionAtHost": True, "securityType": "Standard"}
    assert profile["storageProfile"]["osDisk"]["diskSizeGB"] == 128
    assert [scale_set.name for scale_set in await cloud.list_owned()] == ["rk-kept"]
