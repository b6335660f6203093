"""Microsoft's own clients with the emulator: credentials, market, and account keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from azure.core.credentials import TokenCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import (
    ClientSecretCredential,
    CredentialUnavailableError,
    DefaultAzureCredential,
    ManagedIdentityCredential,
)
from azure.identity import aio as identity_aio
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.computerecommender import RecommenderMgmtClient
from azure.mgmt.computerecommender.models import SpotPlacementScoresInput

from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.emulated.inside import GROUP_ID
from tests.emulated.process import (
    GROUP,
    SUBSCRIPTION,
    TENANT,
    VERSION,
    Emulator,
    scale_set,
    set_url,
    wait_for,
)

ARM = "https://management.azure.com/.default"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator without delays, whose machines run nothing."""
    flags = ("--create-seconds", "0", "--delete-seconds", "0", "--hollow")
    market = ("--cost-delay-seconds", "0", "--spot-quota", "192")
    running = Emulator(tmp_path_factory.mktemp("azure"), *flags, *market)
    running.make_group()
    yield running
    running.destroy()


@pytest.fixture
def nodes(emulator: Emulator) -> dict[str, Any]:
    """Return a new user-assigned identity."""
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    url = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
    with emulator.signed_in() as client:
        resource = client.put(url + VERSION, json={"location": "eastus"}).raise_for_status().json()
    return dict(resource)


def register(emulator: Emulator, client_id: str, secret: str = "") -> dict[str, Any]:
    """Register a principal, or ask about a managed one."""
    return dict(emulator.admin("principals", {"client_id": client_id, "secret": secret}).json())


def works(emulator: Emulator, credential: TokenCredential) -> dict[str, Any]:
    """Check that the credential opens ARM and return the claims of its token."""
    return _opened(emulator, credential.get_token(ARM).token)


async def works_aio(emulator: Emulator, credential: AsyncTokenCredential) -> dict[str, Any]:
    """Check that an asynchronous credential opens ARM, close it and return its token's claims."""
    async with credential:
        token = await credential.get_token(ARM)
    return _opened(emulator, token.token)


def _opened(emulator: Emulator, token: str) -> dict[str, Any]:
    with emulator.http() as client:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"/subscriptions/{SUBSCRIPTION}{VERSION}"
        client.get(url, headers=headers).raise_for_status()
    return dict(jwt.decode(token, options={"verify_signature": False}))


def trusted(emulator: Emulator) -> dict[str, Any]:
    """Return the options with which a credential signs in to this emulator."""
    return {
        "authority": emulator.arm_url,
        "disable_instance_discovery": True,
        "connection_verify": emulator.ca,
    }


async def test_a_secret_signs_in_and_a_wrong_one_does_not(emulator: Emulator) -> None:
    object_id = register(emulator, "app", "right")["object_id"]
    right = ClientSecretCredential(TENANT, "app", "right", **trusted(emulator))
    wrong_secret = ClientSecretCredential(TENANT, "app", "wrong", **trusted(emulator))
    async_credential = identity_aio.ClientSecretCredential(
        TENANT, "app", "right", **trusted(emulator)
    )

    assert works(emulator, right)["oid"] == object_id
    assert (await works_aio(emulator, async_credential))["oid"] == object_id
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        wrong_secret.get_token(ARM)
    right.close()
    wrong_secret.close()


async def test_a_vm_signs_in_as_its_identity(
    emulator: Emulator, nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": {nodes["id"]: {}}}
    with emulator.signed_in() as client:
        body = scale_set(1) | {"identity": identity}
        client.put(set_url("rk-who"), json=body).raise_for_status()
        (vm,) = wait_for(lambda: emulator.machines("rk-who"))
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", vm["metadata_url"])
        client_id = nodes["properties"]["clientId"]
        with (
            ManagedIdentityCredential() as unnamed,
            ManagedIdentityCredential(client_id=client_id) as n,
        ):
            assert works(emulator, unnamed)["xms_mirid"] == nodes["id"]
            assert works(emulator, n)["oid"] == nodes["properties"]["principalId"]
        async_credential = identity_aio.ManagedIdentityCredential(client_id=client_id)
        assert (await works_aio(emulator, async_credential))["appid"] == client_id
        with (
            ManagedIdentityCredential(
                client_id="99999999-0000-0000-0000-000000000000"
            ) as unknown_credential,
            pytest.raises(CredentialUnavailableError),
        ):
            unknown_credential.get_token(ARM)
        client.delete(set_url("rk-who"))


async def test_an_app_signs_in_as_its_identity(
    emulator: Emulator, nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client_id = nodes["properties"]["clientId"]
    for name, value in register(emulator, client_id)["environment"].items():
        monkeypatch.setenv(name, value)

    with ManagedIdentityCredential(client_id=client_id) as credential:
        assert works(emulator, credential)["xms_mirid"] == nodes["id"]
    async_credential = identity_aio.ManagedIdentityCredential(client_id=client_id)
    assert (await works_aio(emulator, async_credential))["appid"] == client_id


async def test_the_default_credential_finds_its_way(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(emulator, "default", "secret")
    for name, value in {
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": "default",
        "AZURE_CLIENT_SECRET": "secret",
    }.items():
        monkeypatch.setenv(name, value)

    with DefaultAzureCredential(**trusted(emulator)) as credential:
        assert works(emulator, credential)["appid"] == "default"
    async_credential = identity_aio.DefaultAzureCredential(**trusted(emulator))
    assert (await works_aio(emulator, async_credential))["appid"] == "default"


def test_an_emulator_that_enforces_has_one_owner(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path, "--access", "enforced", "--hollow")
    facts = json.loads((tmp_path / "access" / "owner.json").read_text())
    owner = ClientSecretCredential(
        facts["tenant_id"], facts["client_id"], facts["client_secret"], **trusted(emulator)
    )
    register(emulator, "app", "secret")
    unknown_credential = ClientSecretCredential(TENANT, "app", "secret", **trusted(emulator))

    with owner, unknown_credential:
        assert works(emulator, owner)["oid"] == facts["object_id"]
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            works(emulator, unknown_credential)
    assert (tmp_path / "access" / "owner.json").stat().st_mode & 0o077 == 0
    emulator.stop()


ND = "Standard_ND96amsr_A100_v4"


@pytest.fixture(scope="module")
def sign_in(emulator: Emulator) -> dict[str, Any]:
    """Return the options with which every client is made."""
    return {
        "credential": ClientSecretCredential(TENANT, "me", "any", **trusted(emulator)),
        "base_url": emulator.arm_url,
        "credential_scopes": [f"{emulator.arm_url}/.default"],
        "connection_verify": emulator.ca,
        "retry_total": 0,
    }


def test_the_compute_client_reads_skus_and_usages(sign_in: dict[str, Any]) -> None:
    with ComputeManagementClient(subscription_id=SUBSCRIPTION, **sign_in) as client:
        sizes = {s.name: s for s in client.resource_skus.list(filter="location eq 'eastus'")}
        usages = {u.name.value: u for u in client.usage.list("eastus")}

    capabilities = {c.name: c.value for c in sizes[ND].capabilities or []}
    assert capabilities["vCPUs"] == "96"
    assert sizes[ND].family in usages
    assert usages["lowPriorityCores"].limit == 192


@pytest.mark.parametrize("version", ["2025-06-05", "2026-09-05-preview"])
def test_the_recommender_client_scores_places(sign_in: dict[str, Any], version: str) -> None:
    score_request = {
        "desiredLocations": ["eastus", "westus2"],
        "desiredSizes": [{"sku": ND}],
        "desiredCount": 2,
        "availabilityZones": False,
    }
    client_options = {"subscription_id": SUBSCRIPTION, "api_version": version, **sign_in}
    with RecommenderMgmtClient(**client_options) as client:
        placement = client.spot_placement_scores.post(
            "eastus", SpotPlacementScoresInput(score_request)
        )

    scores = placement.placement_scores or []
    assert [(s.region, s.score) for s in scores] == [("eastus", "High"), ("westus2", "High")]


def test_az_registers_the_cloud_and_signs_in(emulator: Emulator) -> None:
    with emulator.http() as anonymous, emulator.signed_in() as client:
        cloud = anonymous.get("/metadata/endpoints?api-version=2022-09-01").json()
        openid = anonymous.get(f"/{TENANT}/v2.0/.well-known/openid-configuration").json()
        subscriptions = client.get("/subscriptions?api-version=2022-12-01").json()["value"]

    assert cloud["resourceManager"] == cloud["authentication"]["loginEndpoint"] == emulator.arm_url
    assert openid["token_endpoint"] == f"{emulator.arm_url}/{TENANT}/oauth2/v2.0/token"
    assert [row["subscriptionId"] for row in subscriptions] == [SUBSCRIPTION]


async def test_the_keys_of_the_account_open_its_blobs(azurite: Azurite, tmp_path: Path) -> None:
    account = dict(
        setting.split("=", 1) for setting in azurite.connection_string.split(";") if setting
    )
    root = account["BlobEndpoint"].rstrip("/").removesuffix("/" + account["AccountName"])
    blobs = ("--blob-endpoint", root, "--blob-key", account["AccountKey"])
    emulator = Emulator(tmp_path, "--hollow", *blobs)
    emulator.make_group()
    with emulator.signed_in() as client:
        url = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/{account['AccountName']}"
        resource_body = {"location": "eastus", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
        resource = client.put(url + VERSION, json=resource_body).raise_for_status().json()
        keys = client.post(f"{url}/listKeys{VERSION}").raise_for_status().json()["keys"]
    emulator.stop()
    store = AzureBlobStore(
        f"DefaultEndpointsProtocol=http;AccountName={resource['name']};AccountKey={keys[0]['value']};"
        f"BlobEndpoint={resource['properties']['primaryEndpoints']['blob']}"
    )
    await store.create_container("from-arm")
    await store.write("from-arm", "hello", b"world")

    data, _ = await store.read("from-arm", "hello")

    assert data == b"world"
    await store.close()
