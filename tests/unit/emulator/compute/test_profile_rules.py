"""What the emulated Azure refuses in the profile of a scale set."""

import base64
import copy
from typing import Any

import pytest

from emulator.compute.rules.scale_set_rules import check
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError

EASTUS = catalog().offer("standard_nd96amsr_a100_v4", "eastus")
SPOT: dict[str, Any] = {
    "sku": {"name": "Standard_ND96amsr_A100_v4", "capacity": 2},
    "properties": {
        "upgradePolicy": {"mode": "Manual"},
        "virtualMachineProfile": {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": -1},
            "storageProfile": {"osDisk": {"diffDiskSettings": {"option": "Local"}}},
        },
    },
}


def _key(data: str) -> dict[str, Any]:
    return {"linuxConfiguration": {"ssh": {"publicKeys": [{"keyData": data}]}}}


def _subnet(name: str) -> dict[str, Any]:
    address = {"name": "primary", "properties": {"subnet": {"id": name}}}
    card = {"name": "primary", "properties": {"ipConfigurations": [address]}}
    return {"networkInterfaceConfigurations": [card]}


def refusal(name: str = "rk-1", custom_data: str = "", **profile: object) -> tuple[int, str]:
    """Status and code for a Spot scale set with these members in its profile."""
    model = copy.deepcopy(SPOT)
    model["properties"]["virtualMachineProfile"] |= profile
    assert EASTUS
    try:
        check(name, model, custom_data, EASTUS)
    except ArmError as error:
        return error.status, error.code
    return 0, ""


def test_the_scale_set_that_rekindle_makes_is_accepted() -> None:
    assert refusal() == (0, "")
    assert refusal(custom_data=base64.b64encode(b"x" * 65535).decode()) == (0, "")


@pytest.mark.parametrize(
    ("profile", "status", "code"),
    [
        ({"evictionPolicy": "Deallocate"}, 400, "BadRequest"),
        ({"billingProfile": {"maxPrice": 8.4}}, 409, "SpotPriceGreaterThanProvidedMaxPrice"),
        ({"billingProfile": {"maxPrice": 0}}, 400, "MaxPriceValueInvalid"),
        ({"billingProfile": {"maxPrice": 8.5}}, 0, ""),
        ({"priority": "Regular"}, 400, "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"),
        ({"osProfile": {"computerNamePrefix": "x" * 59}}, 400, "InvalidParameter"),
        ({"osProfile": _key("")}, 400, "InvalidParameter"),
        ({"osProfile": _key("ssh-ed25519 AAAA somebody")}, 0, ""),
        ({"networkProfile": _subnet("")}, 400, "LinkedInvalidPropertyId"),
        ({"networkProfile": _subnet("/subscriptions/s/subnets/nodes")}, 0, ""),
    ],
)
def test_a_profile_is_refused_as_azure_does(
    profile: dict[str, Any], status: int, code: str
) -> None:
    assert refusal(**profile) == (status, code)


@pytest.mark.parametrize("name", ["", "_a", "a-", "a b", "a.b", "a/b", "x" * 65])
def test_bad_names_are_refused(name: str) -> None:
    assert refusal(name) == (400, "InvalidParameter")


@pytest.mark.parametrize("custom_data", ["#cloud-config", "x" * 87384, "abc"])
def test_custom_data_is_base64_of_at_most_64_kib(custom_data: str) -> None:
    assert refusal(custom_data=custom_data) == (400, "InvalidParameter")
