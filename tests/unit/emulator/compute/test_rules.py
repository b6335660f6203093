"""What Azure refuses in a scale set as a whole."""

import copy
from typing import Any

import pytest

from emulator.compute.rules.scale_set_form import SCALE_SET, formed
from emulator.compute.rules.scale_set_rules import check
from emulator.core.catalog import SizeOffer, catalog
from emulator.core.errors import ArmError
from tests.emulated.process import scale_set


def offer(size: str) -> SizeOffer:
    found = catalog().offer(size, "eastus")
    assert found
    return found


def refusal(
    capacity: int = 1,
    size: str = "Standard_ND96amsr_A100_v4",
    profile: dict[str, Any] | None = None,
    **properties: object,
) -> tuple[str, str]:
    """Code and words, for a scale set as Rekindle makes them with these members instead."""
    model = copy.deepcopy(scale_set(capacity))
    model["properties"] |= properties
    model["properties"]["virtualMachineProfile"] |= profile or {}
    try:
        check("rk-1", model, "", offer(size))
    except ArmError as error:
        return error.code, error.message
    return "", ""


REGULAR: dict[str, Any] = {"priority": "Regular", "evictionPolicy": None, "billingProfile": None}


def test_a_placement_group_ends_at_a_hundred_and_a_scale_set_at_a_thousand() -> None:
    assert refusal(100) == ("", "")
    assert "exceeds 100" in refusal(101)[1]
    assert refusal(1000, singlePlacementGroup=False) == ("", "")
    assert "exceeds 1000" in refusal(1001, singlePlacementGroup=False)[1]


def test_what_is_for_spot_is_refused_of_others() -> None:
    priced = {**REGULAR, "billingProfile": {"maxPrice": 20}}
    assert refusal(profile=priced)[0] == "MaxPriceIsSupportedOnlyForAzureSpotVirtualMachines"


def test_fault_domains_are_one_to_five() -> None:
    assert refusal(platformFaultDomainCount=5) == ("", "")
    assert refusal(platformFaultDomainCount=6)[0] == "InvalidParameter"


@pytest.mark.parametrize("data", ["hello", "x" * 87384])
def test_user_data_is_base64_of_at_most_64_kib(data: str) -> None:
    assert refusal(profile={"userData": data})[0] == "InvalidParameter"


def test_choices_are_taken_in_any_case_and_kept_in_azures() -> None:
    profile = {"priority": "SPOT", "evictionPolicy": "delete"}
    body = {"properties": {"virtualMachineProfile": profile}}
    kept = formed(body, SCALE_SET)["properties"]["virtualMachineProfile"]
    assert kept == {"priority": "Spot", "evictionPolicy": "Delete"}


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"sku": []}, "sku"),
        ({"sku": {"capacity": "2"}}, "sku.capacity"),
        ({"sku": {"capacity": True}}, "sku.capacity"),
        ({"zones": "1"}, "zones"),
        ({"zones": [None]}, "zones[0]"),
        ({"properties": {"virtualMachineProfile": {"priority": "Cheap"}}}, "priority"),
        (
            {"properties": {"virtualMachineProfile": {"osProfile": [{}]}}},
            "properties.virtualMachineProfile.osProfile",
        ),
    ],
)
def test_a_member_of_the_wrong_type_is_named(body: dict[str, Any], target: str) -> None:
    with pytest.raises(ArmError) as refused:
        formed(body, SCALE_SET)
    assert (refused.value.status, refused.value.target) == (400, target)
