"""Managed identities: as resources, in the VMs that have them, and on App Service."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.clock import Clock
from tests.emulated.inside import GROUP_ID, HERE, SETS, Inside, emulator_inside
from tests.emulated.process import scale_set
from tests.unit.emulator.access.access_world import AUTHORIZATION, READER, guid

KIND = "providers/Microsoft.ManagedIdentity/userAssignedIdentities"
IDENTITIES = f"{GROUP_ID}/{KIND}"
STORAGE = "https://storage.azure.com/"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with a resource group."""
    async with emulator_inside(tmp_path, Clock(), create_seconds=0.0) as emulator:
        yield emulator


async def identity(inside: Inside, name: str) -> dict[str, Any]:
    """Make a user-assigned identity."""
    response = await inside.arm.put(f"{IDENTITIES}/{name}", json={"location": "eastus"})
    body: dict[str, Any] = response.raise_for_status().json()
    return body


async def vm(inside: Inside, *identities: str, system: bool = False) -> str:
    """Make a scale set with these identities and return the metadata address of its VM."""
    kinds = ["SystemAssigned"] * system + ["UserAssigned"] * bool(identities)
    identity_body: dict[str, Any] = {"type": ", ".join(kinds) or "None"}
    if identities:
        identity_body["userAssignedIdentities"] = {name: {} for name in identities}
    response = await inside.arm.put(f"{SETS}/rk", json=scale_set(1) | {"identity": identity_body})
    response.raise_for_status()
    ((_, instance),) = list(inside.fabric.instances())
    return inside.fabric.metadata_url(instance).removeprefix("http://metadata")


async def token(inside: Inside, url: str, **query: str) -> httpx.Response:
    """Ask a VM's metadata service for a token."""
    params = {"api-version": "2018-02-01", "resource": STORAGE} | query
    headers = {"Metadata": "true"}
    url += "/metadata/identity/oauth2/token"
    return await inside.metadata.get(url, params=params, headers=headers)


def claims(response: httpx.Response) -> dict[str, Any]:
    """Return the claims of the token in this answer."""
    text = response.raise_for_status().json()["access_token"]
    return jwt.decode(text, options={"verify_signature": False})


async def test_the_id_of_an_identity_has_the_groups_own_spelling(inside: Inside) -> None:
    path = f"{IDENTITIES}/mine".replace("/rekindle/", "/REKINDLE/")

    body = (await inside.arm.put(path, json={"location": "eastus"})).raise_for_status().json()

    assert body["id"] == f"{IDENTITIES}/mine"


async def test_one_of_several_identities_must_be_named(inside: Inside) -> None:
    first, second = await identity(inside, "first"), await identity(inside, "second")
    url = await vm(inside, first["id"], second["id"])
    ids = second["properties"]
    unnamed = await token(inside, url)

    assert unnamed.status_code == 400
    assert unnamed.json() == {
        "error": "invalid_request",
        "error_description": "Multiple user assigned identities exist, please specify the "
        "clientId / resourceId of the identity in the token request",
    }
    for name, value in (
        ("client_id", ids["clientId"]),
        ("object_id", ids["principalId"]),
        ("mi_res_id", second["id"].upper()),
        ("msi_res_id", second["id"]),
    ):
        assert claims(await token(inside, url, **{name: value}))["oid"] == ids["principalId"]
    foreign = (await identity(inside, "other"))["properties"]["clientId"]
    refused = await token(inside, url, client_id=foreign)
    assert (refused.status_code, refused.json()["error_description"]) == (400, "Identity not found")


async def test_the_systems_identity_needs_no_name(inside: Inside) -> None:
    first = await identity(inside, "first")
    url = await vm(inside, first["id"], system=True)
    token_claims = claims(await token(inside, url))

    reader = f"{HERE}{AUTHORIZATION}/roleDefinitions/{READER}"
    assignment_id = f"{GROUP_ID}{AUTHORIZATION}/roleAssignments/{guid(1)}"
    body = {"properties": {"roleDefinitionId": reader, "principalId": token_claims["oid"]}}

    assert (await inside.arm.put(assignment_id, json=body)).status_code == 201
    assert token_claims["xms_mirid"].endswith("/virtualMachineScaleSets/rk")
    assert token_claims["oid"] != first["properties"]["principalId"]


async def test_a_vm_without_identities_gets_no_token(inside: Inside) -> None:
    url = await vm(inside)
    refused = await token(inside, url)
    bare = await inside.metadata.get(f"{url}/metadata/identity/oauth2/token")
    vague = await token(inside, url, resource="")

    assert (refused.status_code, refused.json()["error_description"]) == (400, "Identity not found")
    assert bare.json()["error_description"] == "Required metadata header not specified"
    assert vague.json()["error_description"] == "Required query variable 'resource' is missing"


async def test_an_identity_keeps_its_ids_until_it_is_deleted(inside: Inside) -> None:
    first, renamed = await identity(inside, "nodes"), await identity(inside, "NODES")
    url = first["id"]
    rows = (await inside.arm.get(IDENTITIES)).json()["value"]
    everywhere = (await inside.arm.get(f"{HERE}/{KIND}")).json()["value"]
    deleted, second = await inside.arm.delete(url), await inside.arm.delete(url)
    missing = await inside.arm.get(url)

    assert first == renamed
    assert rows == everywhere == [first]
    assert (deleted.status_code, second.status_code) == (200, 204)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "ResourceNotFound")


async def test_an_app_is_who_its_header_says(inside: Inside) -> None:
    properties = (await identity(inside, "app"))["properties"]
    body = {"client_id": properties["clientId"]}
    registered = (await inside.metadata.post("/_emulator/principals", json=body)).json()
    url = registered["environment"]["IDENTITY_ENDPOINT"]
    header = {"X-IDENTITY-HEADER": registered["environment"]["IDENTITY_HEADER"]}

    async def ask(headers: dict[str, str], **query: str) -> httpx.Response:
        params = {"api-version": "2019-08-01", "resource": STORAGE} | query
        return await inside.metadata.get(url, params=params, headers=headers)

    accepted = await ask(header, client_id=properties["clientId"])
    assert set(accepted.json()) == {
        "access_token",
        "expires_on",
        "resource",
        "token_type",
        "client_id",
    }
    assert claims(accepted)["oid"] == properties["principalId"] == registered["object_id"]
    assert (await ask({})).status_code == 401
    assert (await ask({"X-IDENTITY-HEADER": "guessed"})).status_code == 401
    assert (await ask(header, client_id="other")).json()["statusCode"] == 400
    assert (await ask(header, resource="")).status_code == 400
    assert (await ask(header, **{"api-version": "2017-09-01"})).status_code == 400


async def test_the_directory_lists_everybody_and_no_secret(inside: Inside) -> None:
    await identity(inside, "nodes")
    body = {"client_id": "app", "secret": "hidden", "name": "App"}
    await inside.metadata.post("/_emulator/principals", json=body)
    response = await inside.metadata.get("/_emulator/principals")
    refused = await inside.metadata.post("/_emulator/principals", json={"secret": 1})

    assert [row["name"] for row in response.json()["value"]] == ["nodes", "App"]
    assert "hidden" not in response.text
    assert refused.status_code == 400


async def test_a_scale_set_shows_the_ids_of_its_identities(inside: Inside) -> None:
    created = await identity(inside, "mine")
    await vm(inside, created["id"], system=True)
    identities = (await inside.arm.get(f"{SETS}/rk")).json()["identity"]

    assert identities["userAssignedIdentities"] == {
        created["id"]: {k: created["properties"][k] for k in ("principalId", "clientId")}
    }
    assert identities["principalId"]
