"""What somebody sees of a list who may not see all of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulated.inside import GROUP_ID, HERE
from tests.emulated.process import scale_set
from tests.unit.emulator.access.access_world import (
    CONTRIBUTOR,
    IDENTITIES,
    MACHINES,
    READER,
    Guarded,
    code,
    guarded,
)

OTHER = f"{GROUP_ID}-2"
SETS_PATH = "/providers/Microsoft.Compute/virtualMachineScaleSets"


@pytest.fixture
async def groups_world(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Yield an emulator that enforces access, with two groups and a scale set in each."""
    async with guarded(tmp_path) as made:
        (await made.owner.put(OTHER, json={"location": "eastus"})).raise_for_status()
        for group in (GROUP_ID, OTHER):
            (await made.owner.put(f"{group}{SETS_PATH}/s", json=scale_set(0))).raise_for_status()
        yield made


async def groups(groups_world: Guarded, path: str) -> list[str]:
    """Whose resources a list shows the app."""
    answer = (await groups_world.app.get(path)).raise_for_status()
    return [row["id"].split("/")[4] for row in answer.json()["value"]]


async def test_a_list_over_the_subscription_shows_what_is_in_ones_own_group(
    groups_world: Guarded,
) -> None:
    lists = (f"{HERE}{SETS_PATH}", f"{HERE}/resources")
    refused = [code(await groups_world.app.get(path)) for path in lists]
    await groups_world.grant(MACHINES)
    narrow = [await groups(groups_world, path) for path in lists]
    await groups_world.grant(READER, HERE, name=2)
    wide = [await groups(groups_world, path) for path in lists]

    assert refused == ["AuthorizationFailed"] * 2
    assert narrow == [["rekindle"]] * 2
    assert wide == [["rekindle", "rekindle-2"]] * 2


async def test_a_role_on_one_resource_shows_that_one_in_the_subscription(
    groups_world: Guarded,
) -> None:
    for name in ("a", "b"):
        (await groups_world.owner.put(f"{IDENTITIES}/{name}", json={"location": "eastus"})).json()
    await groups_world.grant(READER, f"{IDENTITIES}/a")
    paths = (IDENTITIES.replace(GROUP_ID, HERE), f"{HERE}/resources")
    rows = [(await groups_world.app.get(path)).json()["value"] for path in paths]

    assert [[row["name"] for row in found] for found in rows] == [["a"]] * 2
    assert code(await groups_world.app.get(IDENTITIES)) == "AuthorizationFailed"


@pytest.mark.parametrize("rest", ["skus", "locations/eastus/usages"])
async def test_what_is_no_list_of_resources_is_shown_whole_or_not_at_all(
    groups_world: Guarded, rest: str
) -> None:
    await groups_world.grant(CONTRIBUTOR)
    refused = await groups_world.app.get(f"{HERE}/providers/Microsoft.Compute/{rest}")

    assert code(refused) == "AuthorizationFailed"


async def test_an_operation_of_any_service_may_be_followed_by_who_began_it(
    groups_world: Guarded,
) -> None:
    await groups_world.grant(CONTRIBUTOR)
    workspace = f"{GROUP_ID}/providers/Microsoft.MachineLearningServices/workspaces/w"
    (await groups_world.app.put(workspace, json={"location": "eastus"})).raise_for_status()
    gone = await groups_world.app.delete(workspace)

    assert (await groups_world.app.get(gone.headers["Azure-AsyncOperation"])).status_code == 200
