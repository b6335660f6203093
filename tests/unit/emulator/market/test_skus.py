"""Sizes, their restrictions, and what a restriction does to an order."""

from typing import Any

from tests.emulated.inside import HERE, SET, Inside
from tests.emulated.process import scale_set

SKUS = f"{HERE}/providers/Microsoft.Compute/skus"
ND = "Standard_ND96amsr_A100_v4"


async def skus(inside: Inside, **query: str) -> dict[str, dict[str, Any]]:
    answer = await inside.arm.get(SKUS, params={"api-version": "2021-07-01", **query})
    return {row["name"]: row for row in answer.raise_for_status().json()["value"]}


async def restrict(inside: Inside, **body: object) -> int:
    order = {"vm_size": ND, "region": "eastus", **body}
    return (await inside.arm.post("/_emulator/market/restrictions", json=order)).status_code


async def test_a_size_tells_what_it_can_do(inside: Inside) -> None:
    found = (await skus(inside, **{"$filter": "location eq 'eastus'"}))[ND]

    can = {row["name"]: row["value"] for row in found["capabilities"]}
    assert found["family"] == "StandardNDAMSv4_A100Family"
    assert found["locationInfo"][0]["location"] == "eastus"
    assert (can["vCPUs"], can["GPUs"], can["MemoryGB"]) == ("96", "8", "1900")
    assert can["RdmaEnabled"] == can["LowPriorityCapable"] == can["EphemeralOSDiskSupported"]
    assert can["HyperVGenerations"] == "V2"


async def test_a_restricted_size_is_told_and_refused(inside: Inside) -> None:
    assert await restrict(inside) == 200
    shown = (await skus(inside, **{"$filter": "location eq 'eastus'"}))[ND]["restrictions"]
    refused = await inside.arm.put(SET, json=scale_set(1))
    await restrict(inside, reason=None)
    taken = await inside.arm.put(SET, json=scale_set(1))

    assert shown[0]["type"] == "Location"
    assert shown[0]["reasonCode"] == "NotAvailableForSubscription"
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "SkuNotAvailable"
    assert taken.status_code == 201


async def test_a_restricted_zone_bars_only_those_who_name_it(inside: Inside) -> None:
    await restrict(inside, zones=["1"], reason="QuotaId")
    shown = (await skus(inside))[ND]
    zonal = await inside.arm.put(SET, json=scale_set(1) | {"zones": ["1"]})
    regional = await inside.arm.put(SET, json=scale_set(1))

    assert shown["name"] == ND
    assert zonal.json()["error"]["code"] == "SkuNotAvailable"
    assert regional.status_code == 201
