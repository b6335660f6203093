"""Spot Placement Scores follow room, restrictions and quota."""

from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside

GENERATE = (
    f"{HERE}/providers/Microsoft.Compute/locations/eastus/placementScores/spot/generate"
    "?api-version=2025-06-05"
)
ND = "Standard_ND96amsr_A100_v4"
PLACEMENT = {"desiredLocations": ["eastus"], "desiredSizes": [{"sku": ND}], "desiredCount": 2}


async def scores(inside: Inside, **more: object) -> list[dict[str, Any]]:
    answer = await inside.arm.post(GENERATE, json=PLACEMENT | more)
    return list(answer.raise_for_status().json()["placementScores"])


@pytest.mark.parametrize(
    ("room", "score"), [(4, "High"), (3, "Medium"), (1, "Low"), (None, "High")]
)
async def test_the_score_follows_the_room(tmp_path: Path, room: int | None, score: str) -> None:
    place = {"region": "eastus", "vm_size": ND, "available": room}
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.arm.post("/_emulator/capacity", json=place)
        found = await scores(inside)
        assert await scores(inside) == found

    assert found == [{"sku": ND, "region": "eastus", "score": score, "isQuotaAvailable": True}]


async def test_the_quota_counts_all_that_is_wanted(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), spot_quota=191) as inside:
        assert [row["isQuotaAvailable"] for row in await scores(inside)] == [False]
        assert [row["isQuotaAvailable"] for row in await scores(inside, desiredCount=1)] == [True]


async def test_each_zone_has_its_score(tmp_path: Path) -> None:
    other = "Standard_NC24ads_A100_v4"
    async with emulator_inside(tmp_path, Clock()) as inside:
        bar = {"vm_size": other, "region": "eastus", "zones": ["2"]}
        await inside.arm.post("/_emulator/market/restrictions", json=bar)
        found = await scores(inside, desiredSizes=[{"sku": other}], availabilityZones=True)

    assert {row["availabilityZone"]: row["score"] for row in found} == {
        "1": "High",
        "2": "RestrictedSkuNotAvailable",
        "3": "High",
    }
