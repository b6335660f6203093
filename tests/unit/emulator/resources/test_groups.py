"""Resource groups, and the list of what is in them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

GROUP_URL = f"{HERE}/resourceGroups/{GROUP}"
SET = f"{GROUP_URL}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
NETWORK = f"{GROUP_URL}/providers/Microsoft.Network/networkSecurityGroups/guard"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as made:
        await made.make_group()
        guard = {"location": "eastus", "tags": {"owner": "me"}}
        (await made.arm.put(SET, json=scale_set(0))).raise_for_status()
        (await made.arm.put(NETWORK, json=guard)).raise_for_status()
        yield made


async def test_tags_are_changed_alone(inside: Inside) -> None:
    changed = await inside.arm.patch(GROUP_URL, json={"tags": {"a": "b"}})

    assert changed.json()["tags"] == (await inside.arm.get(GROUP_URL)).json()["tags"] == {"a": "b"}
    assert (await inside.arm.patch(GROUP_URL, json={"tags": {"a": 1}})).status_code == 400


async def test_a_group_stays_where_it_is(inside: Inside) -> None:
    moved = await inside.arm.put(GROUP_URL, json={"location": "West US 2"})

    assert (moved.status_code, moved.json()["error"]["code"]) == (
        409,
        "InvalidResourceGroupLocation",
    )


@pytest.mark.parametrize("name", ["a group", "a%26b", "over.", "²", "x" * 91])
async def test_a_name_that_azure_has_for_no_group(inside: Inside, name: str) -> None:
    for method in ("GET", "PUT"):
        place = {"location": "eastus"}
        answer = await inside.arm.request(method, f"{HERE}/resourceGroups/{name}", json=place)
        found = answer.status_code, answer.json()["error"]["code"]
        assert found == (400, "InvalidResourceGroup")


async def test_a_name_may_have_letters_of_any_language(inside: Inside) -> None:
    await inside.make_group("Prüfung_(1).a-b")

    shown = await inside.arm.get(f"{HERE}/resourceGroups/Prüfung_(1).a-b")
    assert (shown.status_code, shown.json()["name"]) == (200, "Prüfung_(1).a-b")


async def test_a_group_is_in_a_region_that_there_is(inside: Inside) -> None:
    answer = await inside.arm.put(f"{HERE}/resourceGroups/b", json={"location": "Atlantis"})

    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (400, "LocationNotAvailableForResourceGroup")
    assert "'atlantis'" in told["message"]
    assert "eastus,eastus2" in told["message"]


async def test_whether_there_is_one_is_told_without_a_body(inside: Inside) -> None:
    there = await inside.arm.head(GROUP_URL)
    gone = await inside.arm.head(f"{HERE}/resourceGroups/no")

    assert (there.status_code, gone.status_code, there.content + gone.content) == (204, 404, b"")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", ["rk-1", "guard"]),
        ("resourceType eq 'microsoft.compute/virtualmachinescalesets'", ["rk-1"]),
        ("tagName eq 'owner' and tagValue eq 'me'", ["guard"]),
        ("tagName eq 'owner' and tagValue eq 'you'", []),
        ("tagname eq 'OWNER'", ["guard"]),
        ("resourceGroup eq 'nowhere'", []),
    ],
)
@pytest.mark.parametrize("where", [HERE, GROUP_URL])
async def test_resources_are_listed_by_a_filter(
    inside: Inside, where: str, wanted: str, found: list[str]
) -> None:
    answer = await inside.arm.get(f"{where}/resources", params={"$filter": wanted})

    assert [row["name"] for row in answer.json()["value"]] == found


async def test_so_many_are_listed_as_are_wanted(inside: Inside) -> None:
    answer = await inside.arm.get(f"{GROUP_URL}/resources", params={"$top": "1"})

    assert len(answer.json()["value"]) == 1


@pytest.mark.parametrize(
    "query",
    [{"$filter": f} for f in ("name", "name eq", "name eq 'a' and", "weight eq 'a'", "name eq a")]
    + [{"$filter": f} for f in ("name eq 'a' xor name eq 'b'", "'", "name gt 'a'", "§")]
    + [{"$filter": "tagName eq 'owner' and tagValue eq 'me' and name eq 'guard'"}]
    + [{"$top": t} for t in ("0", "-1", "many", "")],
)
async def test_a_filter_that_azure_cannot_read(inside: Inside, query: dict[str, str]) -> None:
    assert (await inside.arm.get(f"{HERE}/resources", params=query)).status_code == 400


async def test_a_group_takes_all_that_is_in_it_along(inside: Inside) -> None:
    await inside.arm.delete(GROUP_URL)
    await inside.pass_time(2)

    assert (await inside.arm.get(GROUP_URL)).status_code == 404
    await inside.make_group()
    assert (await inside.arm.get(NETWORK)).status_code == 404
    assert (await inside.arm.get(SET)).status_code == 404
    assert not inside.fabric.state.resources
