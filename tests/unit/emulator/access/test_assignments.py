"""Role definitions and assignments, as ARM resources."""

from typing import Any

import pytest

from tests.emulated.inside import GROUP_ID, HERE, SETS
from tests.unit.emulator.access.access_world import (
    AUTHORIZATION,
    CONTRIBUTOR,
    READER,
    Guarded,
    assignment,
    code,
    guid,
)

DEFINITIONS = f"{HERE}{AUTHORIZATION}/roleDefinitions"
ASSIGNMENTS = f"{AUTHORIZATION}/roleAssignments"
WRITER = {
    "roleName": "Rekindle",
    "description": "What the service calls",
    "assignableScopes": [GROUP_ID],
    "permissions": [{"actions": ["Microsoft.Compute/virtualMachineScaleSets/write"]}],
}


async def listed(world: Guarded, scope: str, text: str = "") -> set[str]:
    """Return the last digits of the assignments that a list shows, without the first owner's."""
    params = {"api-version": "2022-04-01"} | ({"$filter": text} if text else {})
    response = await world.owner.get(f"{scope}{ASSIGNMENTS}", params=params)
    rows: list[dict[str, Any]] = response.raise_for_status().json()["value"]
    assignments = [r for r in rows if r["properties"]["principalId"] == world.app_id]
    return {row["name"].lstrip("0-") for row in assignments}


async def test_a_role_is_given_once(world: Guarded) -> None:
    first, repeated = await world.grant(READER), await world.grant(READER)
    duplicate = await world.grant(READER, name=2)
    changed = await world.grant(CONTRIBUTOR)

    assert (first.status_code, repeated.status_code) == (201, 200)
    assert first.json()["properties"]["scope"] == GROUP_ID
    assert first.json()["properties"]["principalType"] == "ServicePrincipal"
    assert (duplicate.status_code, code(duplicate)) == (409, "RoleAssignmentExists")
    assert duplicate.json()["error"]["message"] == (
        "The role assignment already exists. The ID of the conflicting role assignment is "
        f"{guid(1).replace('-', '')}."
    )
    assert (changed.status_code, code(changed)) == (400, "RoleAssignmentUpdateNotPermitted")


async def test_nobody_gets_a_role_unless_said_to_be_somebody(world: Guarded) -> None:
    url = f"{GROUP_ID}{ASSIGNMENTS}/{guid(7)}"
    unknown = await world.owner.put(url, json=assignment(READER, guid(5)))
    vouched = await world.owner.put(
        url, json=assignment(READER, guid(5), principalType="ServicePrincipal")
    )

    assert (unknown.status_code, code(unknown)) == (400, "PrincipalNotFound")
    assert "Principal 00000000000000000000000000000005 does not exist" in unknown.text
    assert vouched.status_code == 201
    nowhere = await world.grant(READER, f"{HERE}/resourceGroups/gone")
    assert (nowhere.status_code, code(nowhere)) == (404, "ResourceGroupNotFound")


@pytest.mark.parametrize(
    ("name", "body", "expected_code"),
    [
        ("x", assignment(READER, guid(5)), "InvalidRoleAssignmentId"),
        (guid(1), assignment(guid(4), guid(5)), "RoleDefinitionDoesNotExist"),
        (guid(1), assignment(READER, "me"), "InvalidPrincipalId"),
        (guid(1), assignment(READER, guid(5), principalType="Dog"), "InvalidRequestContent"),
    ],
)
async def test_what_is_no_assignment_is_refused(
    world: Guarded, name: str, body: dict[str, Any], expected_code: str
) -> None:
    refused = await world.owner.put(f"{GROUP_ID}{ASSIGNMENTS}/{name}", json=body)

    assert (refused.status_code, code(refused)) == (400, expected_code)


async def test_lists_look_up_and_down(world: Guarded) -> None:
    await world.grant(READER, HERE, name=1)
    await world.grant(READER, GROUP_ID, name=2)
    await world.grant(READER, f"{SETS}/a", name=3)

    assert await listed(world, GROUP_ID) == {"1", "2", "3"}
    assert await listed(world, GROUP_ID, "atScope()") == {"1", "2"}
    assert await listed(world, f"{SETS}/b") == {"1", "2"}
    assert await listed(world, HERE, f"principalId eq '{world.app_id}'") == {"1", "2", "3"}
    assert await listed(world, HERE, f"atScope() and assignedTo('{world.app_id}')") == {"1"}
    assert await listed(world, HERE, f"principalId eq '{guid(5)}'") == set()


async def test_an_assignment_is_shown_and_taken_away(world: Guarded) -> None:
    assignment_id = (await world.grant(READER)).json()["id"]
    fetched = await world.owner.get(assignment_id)
    deleted = await world.owner.delete(assignment_id.upper())
    deleted_twice = await world.owner.delete(assignment_id)
    missing = await world.owner.get(assignment_id)

    assert fetched.json() == deleted.json()
    assert (deleted_twice.status_code, missing.status_code) == (204, 404)
    assert code(missing) == "RoleAssignmentNotFound"


async def test_built_in_roles_are_found_by_name_and_stay_as_they_are(world: Guarded) -> None:
    params = {"$filter": "roleName eq 'Reader'", "api-version": "2022-04-01"}
    (definition,) = (await world.owner.get(DEFINITIONS, params=params)).json()["value"]
    body = {"properties": WRITER}

    assert definition["properties"]["permissions"][0]["actions"] == ["*/read"]
    assert definition["id"] == f"{DEFINITIONS}/{READER}"
    assert (await world.owner.get(f"{AUTHORIZATION}/roleDefinitions/{READER}")).status_code == 200
    assert (await world.owner.put(definition["id"], json=body)).status_code == 403


@pytest.mark.parametrize(
    ("name", "change", "expected_code"),
    [
        ("x", {}, "InvalidRoleDefinitionId"),
        (guid(8), {"roleName": ""}, "RoleDefinitionNameNullOrEmpty"),
        (guid(8), {"assignableScopes": []}, "MissingAssignableScopes"),
        (guid(8), {"assignableScopes": ["/"]}, "InvalidAssignableScopes"),
        (guid(8), {"permissions": None}, "RoleDefinitionPermissionsNullOrEmpty"),
        (guid(8), {"permissions": [{"actions": ["fly"]}]}, "InvalidActionOrNotAction"),
    ],
)
async def test_what_is_no_role_is_refused(
    world: Guarded, name: str, change: dict[str, Any], expected_code: str
) -> None:
    refused = await world.owner.put(f"{DEFINITIONS}/{name}", json={"properties": WRITER | change})

    assert (refused.status_code, code(refused)) == (400, expected_code)
