"""Groups, networks, accounts, registries, servers and vaults."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import GROUP_ID, HERE, PROVIDERS, SET, Inside, emulator_inside
from tests.emulated.process import scale_set

NETWORKS = "Microsoft.Network/virtualNetworks"
GUARDS = "Microsoft.Network/networkSecurityGroups"
ACCOUNTS = "Microsoft.Storage/storageAccounts"
SERVERS = "Microsoft.DBforPostgreSQL/flexibleServers"
VAULTS = "Microsoft.KeyVault/vaults"
REGISTRIES = "Microsoft.ContainerRegistry/registries"
TENANT = "11111111-1111-1111-1111-111111111111"
Json = dict[str, Any]


async def put(
    inside: Inside,
    resource: str,
    /,
    location: str = "eastus",
    **body: Any,  # noqa: ANN401 - JSON
) -> httpx.Response:
    """Put a resource in the group."""
    return await inside.arm.put(f"{PROVIDERS}/{resource}", json={"location": location, **body})


async def made(inside: Inside, resource: str, /, **body: Any) -> Json:  # noqa: ANN401 - JSON
    """Put a resource that will do."""
    return dict((await put(inside, resource, **body)).raise_for_status().json())


async def get(inside: Inside, resource: str) -> Json:
    """Show what there is."""
    return dict((await inside.arm.get(f"{PROVIDERS}/{resource}")).raise_for_status().json())


def code(response: httpx.Response) -> str:
    """Azure's word for a refusal."""
    assert response.status_code >= 400, response.text
    return str(response.json()["error"]["code"])


def network(*prefixes: str, **subnets: str) -> Json:
    """Return a network with subnets, passed as name=prefix."""
    rows = [{"name": n, "properties": {"addressPrefix": p}} for n, p in subnets.items()]
    space = {"addressPrefixes": list(prefixes or ("10.0.0.0/16",))}
    return {"properties": {"addressSpace": space, "subnets": rows}}


ACCOUNT: Json = {"kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
SERVER: Json = {
    "sku": {"name": "Standard_B1ms", "tier": "Burstable"},
    "properties": {"administratorLogin": "rk", "administratorLoginPassword": "Horse-battery-1"},
}
VAULT: Json = {
    "properties": {
        "tenantId": TENANT,
        "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": True,
    }
}


async def test_a_resource_lives_from_put_to_delete(inside: Inside) -> None:
    name = f"{ACCOUNTS}/account"
    first = await put(inside, name, **ACCOUNT, tags={"a": "1"})
    second = await put(inside, name.upper().replace("ACCOUNT", "account"), **ACCOUNT)
    changed = await inside.arm.patch(
        f"{PROVIDERS}/{name}", json={"properties": {"accessTier": "Cool"}}
    )
    listed = (await get(inside, ACCOUNTS))["value"]
    everywhere = (await inside.arm.get(f"{HERE}/providers/{ACCOUNTS}")).json()["value"]
    deleted = [(await inside.arm.delete(f"{PROVIDERS}/{name}")).status_code for _ in range(2)]
    missing = await inside.arm.get(f"{PROVIDERS}/{name}")

    assert [first.status_code, second.status_code, changed.status_code] == [200, 200, 200]
    assert first.json()["properties"]["provisioningState"] == "Succeeded"
    assert "tags" not in second.json()
    assert changed.json()["properties"]["accessTier"] == "Cool"
    assert (
        [row["id"] for row in listed] == [row["id"] for row in everywhere] == [first.json()["id"]]
    )
    assert (deleted, code(missing)) == ([200, 204], "ResourceNotFound")


async def test_the_range_that_rdma_uses_is_no_concern_of_azure(inside: Inside) -> None:
    assert (await put(inside, f"{NETWORKS}/n", **network("172.16.0.0/16"))).status_code == 201


async def test_what_a_subnet_or_a_gateway_uses_must_exist(inside: Inside) -> None:
    body = network(a="10.0.0.0/24")
    guard = f"{PROVIDERS}/{GUARDS}/g"
    body["properties"]["subnets"][0]["properties"]["networkSecurityGroup"] = {"id": guard}
    uses = {"publicIpAddresses": [{"id": f"{PROVIDERS}/Microsoft.Network/publicIPAddresses/a"}]}
    early = await put(inside, f"{NETWORKS}/n", **body)
    refused = await put(inside, "Microsoft.Network/natGateways/g", properties=uses)
    await made(inside, f"{GUARDS}/g", properties={"securityRules": []})
    await made(inside, f"{NETWORKS}/n", **body)

    assert {code(early), code(refused)} == {"InvalidResourceReference"}


async def test_an_account_has_keys_that_stay_and_a_blob_service(inside: Inside) -> None:
    account, versions = f"{ACCOUNTS}/account", {"isVersioningEnabled": True}
    await made(inside, account, **ACCOUNT)
    keys = [(await inside.arm.post(f"{PROVIDERS}/{account}/listKeys")).json() for _ in range(2)]
    await made(inside, f"{account}/blobServices/default", properties=versions)
    service = await get(inside, f"{account}/blobServices/default")

    assert [key["keyName"] for key in keys[0]["keys"]] == ["key1", "key2"]
    assert keys[0] == keys[1]
    assert service["properties"]["isVersioningEnabled"] is True


NETWORK = f"{GROUP_ID}/providers/Microsoft.Network/networkSecurityGroups/guard"


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as emulator:
        guard = {"location": "eastus", "tags": {"owner": "me"}}
        (await emulator.arm.put(SET, json=scale_set(0))).raise_for_status()
        (await emulator.arm.put(NETWORK, json=guard)).raise_for_status()
        yield emulator


@pytest.mark.parametrize(
    ("filter_text", "names"),
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
    filled: Inside, where: str, filter_text: str, names: list[str]
) -> None:
    response = await filled.arm.get(f"{where}/resources", params={"$filter": filter_text})

    first = await filled.arm.get(f"{where}/resources", params={"$filter": filter_text, "$top": "1"})
    assert [row["name"] for row in response.json()["value"]] == names
    assert [row["name"] for row in first.json()["value"]] == names[:1]


async def test_a_group_takes_all_that_is_in_it_along(filled: Inside) -> None:
    begun = await filled.arm.delete(GROUP_ID)
    assert "Azure-AsyncOperation" not in begun.headers  # a Location only
    await filled.pass_time(2)

    assert (await filled.arm.get(GROUP_ID)).status_code == 404
    await filled.make_group()
    assert (await filled.arm.get(NETWORK)).status_code == 404
    assert (await filled.arm.get(SET)).status_code == 404
    assert not filled.fabric.state.resources


async def test_a_group_has_tags_and_a_name_in_letters_of_any_language(inside: Inside) -> None:
    path = f"{HERE}/resourceGroups/Prüfung_(1).a-b"
    await inside.make_group("Prüfung_(1).a-b")
    changed = await inside.arm.patch(path, json={"tags": {"a": "b"}})
    group = (await inside.arm.get(path)).json()

    assert changed.json()["tags"] == group["tags"] == {"a": "b"}
    assert group["name"] == "Prüfung_(1).a-b"
    assert (await inside.arm.patch(path, json={"tags": {"a": 1}})).status_code == 400


async def test_names_of_accounts_and_registries_are_the_worlds(inside: Inside) -> None:
    registry = {"sku": {"name": "Basic"}}
    await made(inside, f"{ACCOUNTS}/taken", **ACCOUNT)
    registry_body = await made(inside, f"{REGISTRIES}/images", **registry)
    await inside.make_group("other")
    duplicates = [
        await inside.arm.put(
            f"{HERE}/resourceGroups/other/providers/{resource}", json={"location": "eastus", **body}
        )
        for resource, body in ((f"{ACCOUNTS}/taken", ACCOUNT), (f"{REGISTRIES}/Images", registry))
    ]

    assert registry_body["properties"]["loginServer"] == "images.azurecr.io"
    assert [code(response) for response in duplicates] == [
        "StorageAccountAlreadyTaken",
        "AlreadyInUse",
    ]


async def test_servers_and_vaults_hide_their_secrets(inside: Inside) -> None:
    server = await made(inside, f"{SERVERS}/db1", **SERVER)
    await made(inside, f"{SERVERS}/db1/databases/rekindle", properties={})
    vault = await made(inside, f"{VAULTS}/vault", **VAULT)
    secret = await made(inside, f"{VAULTS}/vault/secrets/s", properties={"value": "hush-hush"})

    assert "Horse" not in str(server)
    assert server["properties"]["fullyQualifiedDomainName"] == "db1.postgres.database.azure.com"
    assert vault["properties"]["vaultUri"] == "https://vault.vault.azure.net/"
    assert "hush-hush" not in str(secret) + str(inside.fabric.state.resources)
