"""What Azure refuses of scale sets and their VMs: what is sent, code and words."""

import base64
import copy
from typing import Any

import pytest

from emulator.compute.rules.scale_set_form import SCALE_SET, formed
from tests.emulated.inside import GROUP_ID, HERE, PROVIDERS, SET, SETS, Inside
from tests.emulated.process import scale_set
from tests.unit.emulator.deployments.deployed import network
from tests.unit.emulator.refused import Json, Refusal, check

INVALID, BAD = "InvalidParameter", "BadRequest"
SIZES = ("Standard_D4s_v5", "Standard_D2s_v5")
REGULAR = {"priority": "Regular", "evictionPolicy": None, "billingProfile": None}
WINDOWS = {"adminUsername": "rekindle", "windowsConfiguration": {"timeZone": "UTC"}}
NETWORK = f"{PROVIDERS}/Microsoft.Network/virtualNetworks/n"
MIXED = "SkuProfile"


def profile(**members: Any) -> Json:  # noqa: ANN401 - JSON
    """Return a Spot scale set with these members in its VM profile."""
    return scale_set(1, **members)


def set_of(capacity: int = 1, **properties: object) -> Json:
    """Return a scale set with these properties."""
    body = scale_set(capacity)
    body["properties"] |= properties
    return body


def system(**members: object) -> Json:
    """Return a scale set with these members in its osProfile."""
    return profile(osProfile=members)


def disk(**members: object) -> Json:
    """Return a scale set with these members in its ephemeral OS disk."""
    return profile(storageProfile={"osDisk": {"diffDiskSettings": {"option": "Local"}} | members})


def priced(price: float) -> Json:
    """Return a scale set with this maximum price."""
    return profile(billingProfile={"maxPrice": price})


def linked(subnet: str) -> Json:
    """Return a scale set with an address in this subnet."""
    address = {"name": "ip", "properties": {"subnet": {"id": subnet}}}
    card = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [address]}}
    return profile(networkProfile={"networkInterfaceConfigurations": [card]})


def flexible(**properties: object) -> Json:
    """Return a Flexible scale set with these properties; None removes a property."""
    members = {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1, **properties}
    plain = scale_set(1)
    inner = {"virtualMachineProfile": plain["properties"]["virtualMachineProfile"], **members}
    return plain | {"properties": {k: v for k, v in inner.items() if v is not None}}


def mix(sku: Json | None = None, **change: object) -> Json:
    """Return a scale set with a mix of VM sizes; ``change`` replaces members of the mix."""
    sizes = {"vmSizes": [{"name": SIZES[0]}], "allocationStrategy": "Prioritized"} | change
    system = {"osProfile": {"adminUsername": "azureuser"}}
    body = flexible(skuProfile=sizes, virtualMachineProfile=system)
    return body | {"sku": {"name": "Mix", "capacity": 1} | (sku or {})}


def key(data: str) -> Json:
    """Return a scale set whose user has this SSH key."""
    return system(linuxConfiguration={"ssh": {"publicKeys": [{"keyData": data}]}})


NEVER_ENDING = base64.b64encode(b"x" * 65537).decode()
NEW = [
    (system(adminUsername="Root"), INVALID, "adminUsername"),
    (system(adminPassword="password1"), INVALID, "between 6-72 characters"),
    (system(**WINDOWS, computerNamePrefix="rekindle-win"), INVALID, "Windows computer name prefix"),
    (system(computerNamePrefix="x" * 59), INVALID, "cannot exceed 58 characters"),
    (set_of(automaticRepairsPolicy={"enabled": True}), BAD, "Automatic repairs not supported"),
    (set_of(upgradePolicy=None), INVALID, "'upgradePolicy' is missing"),
    (scale_set(-1), INVALID, "sku.capacity"),
    (scale_set(101), INVALID, "exceeds 100"),
    (set_of(platformFaultDomainCount=6), INVALID, "range 1 to 5"),
    ({**scale_set(1), "zones": ["9"]}, "AvailabilityZoneNotSupported", "'9' for resource"),
    (flexible(overprovision=True), INVALID, "Parameter 'overprovision' is not allowed"),
    (flexible(platformFaultDomainCount=None), INVALID, "'platformFaultDomainCount' is missing"),
    (flexible(virtualMachineProfile=linked("/s")["properties"]["virtualMachineProfile"]),
     "NetworkApiVersionMustBeSpecifiedWithNetworkInterfaceConfigurations", "must be specified"),
    (flexible() | {"identity": {"type": "SystemAssigned"}}, BAD, "only user-assigned identities"),
    (set_of(priorityMixPolicy={"baseRegularPriorityCount": 1}), BAD, "does not offer"),
    (linked(""), "LinkedInvalidPropertyId", "start with '/subscriptions/{id}'"),
    (linked(f"{NETWORK}/subnets/gone"), "InvalidResourceReference", "gone referenced by"),
    (key(""), INVALID, "publicKeys.keyData"),
    (system(customData="#cloud-config"), INVALID, "Custom data in OSProfile must be in Base64"),
    (system(customData=NEVER_ENDING), INVALID, "maximum length of 87380"),
    (profile(userData="hello"), INVALID, "User data in VirtualMachineProfile must be"),
    (profile(priority="Regular"), "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines", "only"),
    (profile(**REGULAR | {"billingProfile": {"maxPrice": 20}}),
     "MaxPriceIsSupportedOnlyForAzureSpotVirtualMachines", "only for"),
    (profile(evictionPolicy="Deallocate"), BAD, "support only 'Delete' evictionPolicy"),
    (priced(0), "MaxPriceValueInvalid", "greater than zero"),
    ({**scale_set(1), "sku": {"name": "Standard_B2s", "capacity": 1}},
     "AzureSpotIsNotSupportedForThisVMSize", "Standard_B2s"),
    ({**scale_set(0), "location": None}, "LocationRequired", ""),
    ({**scale_set(0), "location": "atlantis"}, "LocationNotAvailableForResourceType", "'atlantis'"),
    (set_of(proximityPlacementGroup={"id": "/gone"}), BAD, "ProximityPlacementGroup '/gone'"),
    (disk(managedDisk={"diskEncryptionSet": {"id": "/gone"}}), BAD, "DiskEncryptionSet '/gone'"),
    (profile(securityProfile={"encryptionAtHost": True}), INVALID, "feature is not enabled"),
    # Mixes of sizes
    (set_of(skuProfile={"vmSizes": [{"name": SIZES[0]}]}), INVALID, "'skuProfile' is not allowed"),
    (mix({"name": SIZES[0]}), "SkuNameMustBeMixIfSkuProfileIsSpecified", "set to \"Mix\""),
    (mix({"tier": "Standard"}), "SkuTierMustNotBeSetIfSkuProfileIsSpecified", "Standard"),
    (mix(allocationStrategy="Best"), f"{MIXED}AllocationStrategyInvalid", ""),
    (mix(vmSizes=[]), f"{MIXED}VMSizesCannotBeNullOrEmpty", ""),
    (mix(vmSizes=[{"name": "x"}] * 6), f"{MIXED}HasTooManyVMSizesInRequest", "5"),
    (mix(vmSizes=[{"name": "x"}] * 2), f"{MIXED}VMSizesCannotHaveDuplicates", "x"),
    (mix(vmSizes=[{"name": SIZES[0], "rank": 0}], allocationStrategy=None), INVALID, "rank"),
]  # fmt: skip
CONFLICTS = [
    (priced(8.4), "SpotPriceGreaterThanProvidedMaxPrice", "'8.4 USD' is lower than"),
    (disk(diskSizeGB=2041), "NotSupported", "greater than 2040 GB is not allowed"),
    (profile(storageProfile={"osDisk": {"diffDiskSettings": {"placement": "NvmeDisk"}}}),
     "NotSupported", "'NvmeDisk' is not supported"),
]  # fmt: skip
ROWS = [
    *(Refusal(f"{SETS}/new", body, code, words) for body, code, words in NEW),
    *(Refusal(f"{SETS}/new", body, code, words, 409) for body, code, words in CONFLICTS),
    *(Refusal(f"{SETS}/{name}", scale_set(1), INVALID, "vmScaleSetName")
      for name in ("_a", "a-", "a b", "a.b", "x" * 65)),
]  # fmt: skip


async def test_a_scale_set_is_refused_in_the_words_of_azure(inside: Inside) -> None:
    (await inside.arm.put(NETWORK, json=network())).raise_for_status()
    await check(inside, ROWS)


async def test_what_is_just_within_the_bounds_is_taken(inside: Inside) -> None:
    for number, body in enumerate(
        (
            system(customData=base64.b64encode(b"x" * 65535).decode()),
            priced(8.5),
            key("ssh-ed25519 AAAA somebody"),
            linked("/subscriptions/s/subnets/nodes"),
            set_of(platformFaultDomainCount=5),
            set_of(0, singlePlacementGroup=False),
        )
    ):
        response = await inside.arm.put(f"{SETS}/rk-{number}", json=body)
        assert response.status_code == 201, response.text


FIXED = "PropertyChangeNotAllowed"
CHANGES = [
    ({"orchestrationMode": "Flexible"}, FIXED, "Changing property 'orchestrationMode'"),
    ({"platformFaultDomainCount": 5}, FIXED, "'platformFaultDomainCount' is not allowed"),
    ({"virtualMachineProfile": {"priority": "Regular"}}, FIXED, "'priority'"),
    ({"virtualMachineProfile": {"evictionPolicy": "Deallocate"}}, FIXED, "'evictionPolicy'"),
    ({"virtualMachineProfile": {"osProfile": {"adminUsername": "other"}}}, FIXED,
     "'osProfile.adminUsername'"),
]  # fmt: skip
OF_ONE = [
    *(Refusal(SET, {"properties": change}, code, words, 409, "PATCH")
      for change, code, words in CHANGES),
    Refusal(f"{SETS}/none", {"tags": {}}, "ResourceNotFound", "/none'", 404, "PATCH"),
    Refusal(f"{SET}/virtualMachines/first", None, INVALID, "must be a number", 400, "GET"),
    Refusal(f"{SET}/virtualMachines/9", None, "NotFound", "'9'", 404, "GET"),
    Refusal(f"{SET}/virtualMachines?$filter=name eq 'x'", None, BAD, "not supported", 400, "GET"),
    Refusal(f"{SET}/delete", {"instanceIds": ["9"]}, INVALID, "instanceId 9", 400, "POST"),
    Refusal(f"{SET}/delete", {}, INVALID, "'instanceIds' is missing", 400, "POST"),
    Refusal(f"{SET}/deallocate", {}, "OperationNotAllowed", "ephemeral OS disk", 409, "POST"),
    Refusal(f"{SET}/scaleOut", {}, "NotFound", "This emulator does not offer", 404, "POST"),
    Refusal(f"{SET}/virtualMachines/0/retrieveBootDiagnosticsData", None, "OperationNotAllowed",
            "Boot diagnostics is not enabled", 409, "POST"),
    Refusal(f"{GROUP_ID}/providers/Microsoft.Compute/virtualMachines/none", None,
            "ResourceNotFound", "virtualMachines/none", 404, "GET"),
    Refusal("/subscriptions/00000000-0000-0000-0000-00000000000f/resources", None,
            "SubscriptionNotFound", "could not be found", 404, "GET"),
    Refusal(f"{HERE}/providers/Microsoft.Compute/locations/atlantis/usages", None,
            "NoRegisteredProviderFound", "atlantis", 400, "GET"),
]  # fmt: skip


async def test_a_change_or_an_order_is_refused_in_the_words_of_azure(inside: Inside) -> None:
    (await inside.arm.put(SET, json=scale_set(1))).raise_for_status()
    await inside.pass_time(4)
    await check(inside, OF_ONE)


def test_choices_are_taken_in_any_case_and_kept_in_azures() -> None:
    profile = {"priority": "SPOT", "evictionPolicy": "delete"}
    body = {"properties": {"virtualMachineProfile": copy.deepcopy(profile)}}
    stored = formed(body, SCALE_SET)["properties"]["virtualMachineProfile"]
    assert stored == {"priority": "Spot", "evictionPolicy": "Delete"}


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"sku": {"capacity": True}}, "sku.capacity"),
        ({"zones": "1"}, "zones"),
        ({"properties": {"virtualMachineProfile": {"priority": "Cheap"}}}, "priority"),
        ({"properties": {"virtualMachineProfile": {"osProfile": [{}]}}},
         "properties.virtualMachineProfile.osProfile"),
    ],
)  # fmt: skip
async def test_a_member_of_the_wrong_type_is_named(
    inside: Inside, body: dict[str, Any], target: str
) -> None:
    response = await inside.arm.put(f"{SETS}/new", json=scale_set(1) | body)
    assert (response.status_code, response.json()["error"]["target"]) == (400, target)
