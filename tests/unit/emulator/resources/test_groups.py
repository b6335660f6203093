"""Resource groups, and the list of what is in them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import GROUP_ID, HERE, SET, Inside, emulator_inside
from tests.emulated.process import scale_set

NETWORK = f"{GROUP_ID}/providers/Microsoft.Network/networkSecurityGroups/guard"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as made:
        await made.make_group()
        guard = {"location": "eastus", "tags": {"owner": "me"}}
        (await made.arm.put(SET, json=scale_set(0))).raise_for_status()
        (await made.arm.put(NETWORK, json=guard)).raise_for_status()
        yield made


async def test_tags_are_changed_alone(inside: Inside) -> None:
    changed = await inside.arm.patch(GROUP_ID, json={"tags": {"a": "b"}})

    assert changed.json()["tags"] == (await inside.arm.get(GROUP_ID)).json()["tags"] == {"a": "b"}
    assert (await inside.arm.patch(GROUP_ID, json={"tags": {"a": 1}})).status_code == 400


async def test_a_name_may_have_letters_of_any_language(inside: Inside) -> None:
    await inside.make_group("Prüfung_(1).a-b")

    shown = await inside.arm.get(f"{HERE}/resourceGroups/Prüfung_(1).a-b")
    assert (shown.status_code, shown.json()["name"]) == (200, "Prüfung_(1).a-b")


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
@pytest.mark.parametrize("where", [HERE, GROUP_ID])
async def test_resources_are_listed_by_a_filter(
    inside: Inside, where: str, wanted: str, found: list[str]
) -> None:
    answer = await inside.arm.get(f"{where}/resources", params={"$filter": wanted})

    assert [row["name"] for row in answer.json()["value"]] == found


async def test_so_many_are_listed_as_are_wanted(inside: Inside) -> None:
    answer = await inside.arm.get(f"{GROUP_ID}/resources", params={"$top": "1"})

    assert len(answer.json()["value"]) == 1


async def test_a_group_takes_all_that_is_in_it_along(inside: Inside) -> None:
    await inside.arm.delete(GROUP_ID)
    await inside.pass_time(2)

    assert (await inside.arm.get(GROUP_ID)).status_code == 404
    await inside.make_group()
    assert (await inside.arm.get(NETWORK)).status_code == 404
    assert (await inside.arm.get(SET)).status_code == 404
    assert not inside.fabric.state.resources
