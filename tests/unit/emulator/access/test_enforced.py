"""Who may do what, see what of a list, and deploy what, in an emulator that asks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulated.inside import GROUP_ID, HERE, SETS
from tests.emulated.process import scale_set
from tests.unit.emulator.access.access_world import (
    AUTHORIZATION,
    CONTRIBUTOR,
    IDENTITIES,
    MACHINES,
    OPERATOR,
    READER,
    Guarded,
    code,
    guarded,
    guid,
)
from tests.unit.emulator.deployments.deployed import account, body, template

NETWORK = f"{GROUP_ID}/providers/Microsoft.Network"
SUBNET = f"{NETWORK}/virtualNetworks/v/subnets/s"


def with_links(*identities: str) -> dict[str, Any]:
    """Return a scale set in a subnet, with these user-assigned identities."""
    address = {"name": "ip", "properties": {"subnet": {"id": SUBNET}}}
    card = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [address]}}
    body = scale_set(0, networkProfile={"networkInterfaceConfigurations": [card]})
    users: dict[str, Any] = {name: {} for name in identities}
    return body | {"identity": {"type": "UserAssigned", "userAssignedIdentities": users}}


async def test_without_a_role_nothing_is_allowed(world: Guarded) -> None:
    refused = await world.app.put(f"{SETS}/a", json=scale_set(0))

    assert refused.status_code == 403
    assert refused.json()["error"] == {
        "code": "AuthorizationFailed",
        "message": f"The client 'app' with object id '{world.app_id}' does not have authorization "
        "to perform action 'Microsoft.Compute/virtualMachineScaleSets/write' over scope "
        f"'{SETS}/a' or the scope is invalid. If access was recently granted, please refresh your "
        "credentials.",
    }


async def test_a_role_opens_what_it_names_in_its_scope_only(world: Guarded) -> None:
    (await world.grant(MACHINES)).raise_for_status()

    assert (await world.app.put(f"{SETS}/a", json=scale_set(0))).status_code == 201
    assert (await world.app.get(f"{SETS}/a/virtualMachines")).status_code == 200
    assert (await world.app.get(SETS)).status_code == 200
    assert code(await world.app.delete(GROUP_ID)) == "AuthorizationFailed"
    assert code(await world.app.put(f"{SETS.replace('rekindle', 'rekindle2')}/a", json={})) == (
        "AuthorizationFailed"
    )


async def test_a_list_of_groups_shows_those_that_one_may_see(world: Guarded) -> None:
    async def listed() -> list[str]:
        rows = (await world.app.get(f"{HERE}/resourceGroups")).json()["value"]
        return [row["name"] for row in rows]

    (await world.owner.put(f"{GROUP_ID}-2", json={"location": "eastus"})).raise_for_status()
    before = await listed()
    await world.grant(READER)

    assert (before, await listed()) == ([], ["rekindle"])
    assert (await world.app.get(HERE)).status_code == 200


async def test_a_scale_set_joins_only_what_its_maker_may_use(world: Guarded) -> None:
    created = await world.owner.put(f"{IDENTITIES}/nodes", json={"location": "eastus"})
    identity = created.json()["id"]
    await world.allow("Microsoft.Compute/virtualMachineScaleSets/*")

    neither = await world.app.put(f"{SETS}/a", json=with_links(identity))
    await world.grant(OPERATOR, identity, name=2)
    no_subnet = await world.app.put(f"{SETS}/a", json=with_links(identity))
    await world.grant(MACHINES, name=3)
    accepted = await world.app.put(f"{SETS}/a", json=with_links(identity))

    assert neither.status_code == 403
    assert neither.json()["error"] == {
        "code": "LinkedAuthorizationFailed",
        "message": f"The client 'app' with object id '{world.app_id}' has permission to perform "
        "action 'Microsoft.Compute/virtualMachineScaleSets/write' on scope "
        f"'{SETS}/a'; however, it does not have permission to perform action(s) "
        "'Microsoft.ManagedIdentity/userAssignedIdentities/assign/action,"
        "Microsoft.Network/virtualNetworks/subnets/join/action' on the linked scope(s) "
        f"'{identity},{SUBNET}' (respectively) or the linked scope(s) are invalid.",
    }
    assert "subnets/join/action' on the linked scope(s)" in no_subnet.text
    assert "assign/action" not in no_subnet.text
    assert accepted.status_code != 403


async def test_a_body_that_is_no_json_is_refused_as_such(world: Guarded) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    for text in (b"{", b"\xff", b"[1]", b'{"identity": {"userAssignedIdentities": [1]}}', deep):
        refused = await world.owner.put(f"{SETS}/a", content=text)
        assert refused.status_code == 400, text


async def test_only_members_of_the_directory_sign_in(world: Guarded) -> None:
    form = {"client_id": "nobody", "client_secret": "any"}
    tenant = "11111111-1111-1111-1111-111111111111"
    refused = await world.anybody.post(f"/{tenant}/oauth2/v2.0/token", data=form)

    assert refused.status_code == 400
    assert refused.json()["error_codes"] == [700016]


@pytest.mark.parametrize(
    "path",
    [
        "/subscriptions/providers/Microsoft.Compute",
        "/subscriptions/providers/Microsoft.Authorization/roleDefinitions",
        "/subscriptionsAndMore",
        "//",
        "/subscriptions//resourceGroups//providers//",
    ],
)
async def test_odd_paths_are_refused_as_any_other(world: Guarded, path: str) -> None:
    for caller in (world.app, world.owner):
        response = await caller.get("https://azure" + path)
        assert response.status_code in (400, 403, 404) or response.json() == {"value": []}


async def test_who_has_no_role_sees_no_subscription_and_may_ask_why(world: Guarded) -> None:
    async def count_subscriptions() -> int:
        return len((await world.app.get("/subscriptions")).json()["value"])

    async def allowed() -> list[Any]:
        response = await world.app.get(f"{GROUP_ID}{AUTHORIZATION}/permissions")
        return [row["actions"] for row in response.json()["value"]]

    assert (await count_subscriptions(), await allowed()) == (0, [])
    await world.grant(READER)
    assert (await count_subscriptions(), await allowed()) == (1, [["*/read"]])


async def test_what_was_given_and_taken_is_so_after_a_restart(tmp_path: Path) -> None:
    other_group = f"{GROUP_ID}-2"
    async with guarded(tmp_path) as first:
        (await first.owner.put(other_group, json={"location": "eastus"})).raise_for_status()
        removed = (await first.grant(READER, name=1)).json()["id"]
        (await first.grant(READER, other_group, name=2)).raise_for_status()
        identity = f"{IDENTITIES}/nodes"
        before = (await first.owner.put(identity, json={"location": "eastus"})).json()
        (await first.owner.delete(removed)).raise_for_status()
        owner = (tmp_path / "access" / "owner.json").read_text()
    async with guarded(tmp_path) as second:
        assert (await second.app.get(GROUP_ID)).status_code == 403
        assert (await second.app.get(other_group)).status_code == 200
        after = (await second.owner.get(identity)).json()
        assert (tmp_path / "access" / "owner.json").read_text() == owner

    assert after == before


async def test_a_role_is_changed_only_with_the_right_to_all_its_scopes(world: Guarded) -> None:
    """Else who may define roles in one group could widen those of another."""
    definition = f"{AUTHORIZATION}/roleDefinitions/00000000-0000-0000-0000-00000000000c"
    other_group = f"{GROUP_ID}-2"

    def role(*scopes: str) -> dict[str, Any]:
        allowed = [{"actions": ["Microsoft.Authorization/*"]}]
        properties = {
            "roleName": "Definer",
            "assignableScopes": list(scopes),
            "permissions": allowed,
        }
        return {"properties": properties}

    (await world.owner.put(other_group, json={"location": "eastus"})).raise_for_status()
    (
        await world.owner.put(f"{HERE}{definition}", json=role(GROUP_ID, other_group))
    ).raise_for_status()
    (await world.grant("00000000-0000-0000-0000-00000000000c")).raise_for_status()
    refused = [
        await world.app.put(f"{GROUP_ID}{definition}", json=role(GROUP_ID)),
        await world.app.put(f"{GROUP_ID}{definition[:-1]}d", json=role(other_group)),
    ]
    duplicate = await world.app.put(f"{GROUP_ID}{definition[:-1]}e", json=role(GROUP_ID))

    assert [code(response) for response in refused] == ["AuthorizationFailed"] * 2
    assert code(duplicate) == "RoleDefinitionWithSameNameExists"


async def test_a_role_is_given_only_where_it_can_be_assigned(world: Guarded) -> None:
    role = await world.define("*/read")
    wide = await world.grant(role, HERE)
    right = await world.grant(role, f"{SETS}/a", name=2)
    assert (code(wide), right.status_code) == ("RoleDefinitionDoesNotExist", 201)


OTHER = f"{GROUP_ID}-2"
SETS_PATH = "/providers/Microsoft.Compute/virtualMachineScaleSets"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Yield an emulator that enforces access, with two groups and a scale set in each."""
    async with guarded(tmp_path) as world:
        (await world.owner.put(OTHER, json={"location": "eastus"})).raise_for_status()
        for group in (GROUP_ID, OTHER):
            (await world.owner.put(f"{group}{SETS_PATH}/s", json=scale_set(0))).raise_for_status()
        yield world


async def groups(pair: Guarded, path: str) -> list[str]:
    """Whose resources a list shows the app."""
    response = (await pair.app.get(path)).raise_for_status()
    return [row["id"].split("/")[4] for row in response.json()["value"]]


async def test_a_list_over_the_subscription_shows_what_is_in_ones_own_group(pair: Guarded) -> None:
    lists = (f"{HERE}{SETS_PATH}", f"{HERE}/resources")
    refused = [code(await pair.app.get(path)) for path in lists]
    await pair.grant(MACHINES)
    narrow = [await groups(pair, path) for path in lists]
    others = f"{HERE}/providers/Microsoft.ContainerRegistry/registries"  # and not shown as none
    refused.append(code(await pair.app.get(others)))
    await pair.grant(READER, HERE, name=2)
    wide = [await groups(pair, path) for path in lists]

    assert refused == ["AuthorizationFailed"] * 3
    assert narrow == [["rekindle"]] * 2
    assert wide == [["rekindle", "rekindle-2"]] * 2


async def test_a_role_on_one_resource_shows_that_one_in_the_subscription(pair: Guarded) -> None:
    for name in ("a", "b"):
        (await pair.owner.put(f"{IDENTITIES}/{name}", json={"location": "eastus"})).json()
    await pair.grant(READER, f"{IDENTITIES}/a")
    paths = (IDENTITIES.replace(GROUP_ID, HERE), f"{HERE}/resources")
    rows = [(await pair.app.get(path)).json()["value"] for path in paths]

    assert [[row["name"] for row in page] for page in rows] == [["a"]] * 2
    assert code(await pair.app.get(IDENTITIES)) == "AuthorizationFailed"


@pytest.mark.parametrize("resource_path", ["skus", "locations/eastus/usages"])
async def test_what_is_no_list_of_resources_is_shown_whole_or_not_at_all(
    pair: Guarded, resource_path: str
) -> None:
    await pair.grant(CONTRIBUTOR)
    refused = await pair.app.get(f"{HERE}/providers/Microsoft.Compute/{resource_path}")

    assert code(refused) == "AuthorizationFailed"


async def test_an_operation_of_any_service_may_be_followed_by_who_began_it(pair: Guarded) -> None:
    await pair.grant(CONTRIBUTOR)
    workspace = f"{GROUP_ID}/providers/Microsoft.MachineLearningServices/workspaces/w"
    (await pair.app.put(workspace, json={"location": "eastus"})).raise_for_status()
    deletion = await pair.app.delete(workspace)

    assert (await pair.app.get(deletion.headers["Azure-AsyncOperation"])).status_code == 200


DEPLOYMENT = f"{GROUP_ID}/providers/Microsoft.Resources/deployments/d"
STORAGE = "Microsoft.Storage/storageAccounts"
ACCOUNT = f"{GROUP_ID}/providers/{STORAGE}/account"
DEPLOYS = ("Microsoft.Resources/deployments/*", f"{STORAGE}/read", f"{STORAGE}/write")


async def finished(world: Guarded) -> dict[str, Any]:
    """Run the deployment to its end and return its properties."""
    deployment: dict[str, Any] = {}
    for _ in range(100):
        await world.fabric.step()
        for _ in range(50):  # what is not done by the step is done beside it
            await asyncio.sleep(0)
        deployment = (await world.owner.get(DEPLOYMENT)).json()["properties"]
        if deployment["provisioningState"] != "Running":
            break
    return deployment


async def test_a_template_reads_nothing_that_its_deployer_may_not_read(world: Guarded) -> None:
    other_group = f"{HERE}/resourceGroups/other"
    (await world.owner.put(other_group, json={"location": "eastus"})).raise_for_status()
    plain = {"location": "eastus", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    url = f"{other_group}/providers/{STORAGE}/secret"
    (await world.owner.put(url, json=plain)).raise_for_status()
    tier = f"[reference('{url}', '2024-01-01').accessTier]"
    deployment = body(template(account(), outputs={"tier": {"type": "string", "value": tier}}))
    await world.allow(*DEPLOYS)
    (await world.app.put(DEPLOYMENT, json=deployment)).raise_for_status()
    refused = await finished(world)
    (await world.grant(READER, other_group, name=2)).raise_for_status()
    (await world.app.put(DEPLOYMENT, json=deployment)).raise_for_status()
    allowed = await finished(world)

    assert refused["provisioningState"] == "Failed"
    assert f"action '{STORAGE}/read' over scope" in str(refused["error"])
    assert allowed["outputs"]["tier"]["value"] == "Hot"


async def test_a_right_that_is_taken_away_is_missed_while_the_deployment_runs(
    world: Guarded,
) -> None:
    await world.allow(*DEPLOYS)
    (await world.app.put(DEPLOYMENT, json=body(template(account())))).raise_for_status()
    assignment_id = f"{GROUP_ID}{AUTHORIZATION}/roleAssignments/{guid(1)}"
    (await world.owner.delete(assignment_id)).raise_for_status()
    deployment = await finished(world)

    assert [e["code"] for e in deployment["error"]["details"]] == ["AuthorizationFailed"]
    assert (await world.owner.get(ACCOUNT)).status_code == 404
