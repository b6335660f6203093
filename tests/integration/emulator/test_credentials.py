"""The credentials of azure-identity, against the emulator's token endpoints."""

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
    quick = ("--create-seconds", "0", "--delete-seconds", "0", "--hollow")
    running = Emulator(tmp_path_factory.mktemp("azure"), *quick)
    running.make_group()
    yield running
    running.destroy()


@pytest.fixture
def nodes(emulator: Emulator) -> dict[str, Any]:
    """Return a new user-assigned identity."""
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    url = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
    with emulator.signed_in() as client:
        made = client.put(url + VERSION, json={"location": "eastus"}).raise_for_status().json()
    return dict(made)


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
    wrong = ClientSecretCredential(TENANT, "app", "wrong", **trusted(emulator))
    also = identity_aio.ClientSecretCredential(TENANT, "app", "right", **trusted(emulator))

    assert works(emulator, right)["oid"] == object_id
    assert (await works_aio(emulator, also))["oid"] == object_id
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        wrong.get_token(ARM)
    right.close()
    wrong.close()


async def test_a_vm_signs_in_as_its_identity(
    emulator: Emulator, nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": {nodes["id"]: {}}}
    with emulator.signed_in() as client:
        body = scale_set(1) | {"identity": identity}
        client.put(set_url("rk-who"), json=body).raise_for_status()
        (vm,) = wait_for(lambda: emulator.machines("rk-who"))
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", vm["metadata_url"])
        named = nodes["properties"]["clientId"]
        with (
            ManagedIdentityCredential() as unnamed,
            ManagedIdentityCredential(client_id=named) as n,
        ):
            assert works(emulator, unnamed)["xms_mirid"] == nodes["id"]
            assert works(emulator, n)["oid"] == nodes["properties"]["principalId"]
        also = identity_aio.ManagedIdentityCredential(client_id=named)
        assert (await works_aio(emulator, also))["appid"] == named
        with (
            ManagedIdentityCredential(client_id="99999999-0000-0000-0000-000000000000") as other,
            pytest.raises(CredentialUnavailableError),
        ):
            other.get_token(ARM)
        client.delete(set_url("rk-who"))


async def test_an_app_signs_in_as_its_identity(
    emulator: Emulator, nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = nodes["properties"]["clientId"]
    for name, value in register(emulator, named)["environment"].items():
        monkeypatch.setenv(name, value)

    with ManagedIdentityCredential(client_id=named) as credential:
        assert works(emulator, credential)["xms_mirid"] == nodes["id"]
    also = identity_aio.ManagedIdentityCredential(client_id=named)
    assert (await works_aio(emulator, also))["appid"] == named


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
    also = identity_aio.DefaultAzureCredential(**trusted(emulator))
    assert (await works_aio(emulator, also))["appid"] == "default"


def test_an_emulator_that_enforces_has_one_owner(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path, "--access", "enforced", "--hollow")
    facts = json.loads((tmp_path / "access" / "owner.json").read_text())
    owner = ClientSecretCredential(
        facts["tenant_id"], facts["client_id"], facts["client_secret"], **trusted(emulator)
    )
    register(emulator, "app", "secret")
    nobody = ClientSecretCredential(TENANT, "app", "secret", **trusted(emulator))

    with owner, nobody:
        assert works(emulator, owner)["oid"] == facts["object_id"]
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            works(emulator, nobody)
    assert (tmp_path / "access" / "owner.json").stat().st_mode & 0o077 == 0
    emulator.stop()
