"""An emulator that enforces access, and callers with tokens of their own."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from emulator.app import arm
from emulator.fabric import EmulatorSettings, Fabric
from tests.clock import Clock
from tests.emulated.inside import API, GROUP_ID, HERE
from tests.emulated.process import TENANT

IDENTITIES = f"{GROUP_ID}/providers/Microsoft.ManagedIdentity/userAssignedIdentities"
AUTHORIZATION = "/providers/Microsoft.Authorization"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
MACHINES = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"
OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"


@dataclass
class Guarded:
    """The emulator, its owner, and a principal ``app`` that begins with no role."""

    anybody: httpx.AsyncClient
    owner: httpx.AsyncClient
    app: httpx.AsyncClient
    app_id: str
    fabric: Fabric

    async def grant(self, role: str, scope: str = GROUP_ID, *, name: int = 1) -> httpx.Response:
        """Give the app a role."""
        url = f"{scope}{AUTHORIZATION}/roleAssignments/{guid(name)}"
        return await self.owner.put(url, json=assignment(role, self.app_id))

    async def define(self, *actions: str, scopes: Sequence[str] = (GROUP_ID,)) -> str:
        """Create a custom role with these actions, and return its name."""
        role: dict[str, Any] = {"roleName": "Custom", "assignableScopes": list(scopes)}
        role["permissions"] = [{"actions": list(actions)}]
        url = f"{HERE}{AUTHORIZATION}/roleDefinitions/{guid(12)}"
        (await self.owner.put(url, json={"properties": role})).raise_for_status()
        return guid(12)

    async def allow(self, *actions: str) -> None:
        """Let the app do these things in the group, and no others."""
        (await self.grant(await self.define(*actions))).raise_for_status()


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Guarded]:
    """One with a resource group."""
    settings = EmulatorSettings(folder=folder, hollow=True, access="enforced")
    fabric = Fabric(settings, "http://metadata", lambda: Clock()().timestamp())
    service = httpx.ASGITransport(app=arm(fabric))
    facts = json.loads((folder / "access" / "owner.json").read_text())
    async with client(service) as anybody, client(service) as owner, client(service) as app:
        me = {"client_id": "app", "secret": "secret"}
        registered = await anybody.post("/_emulator/principals", json=me)
        await sign_in(owner, facts["client_id"], facts["client_secret"])
        await sign_in(app, "app", "secret")
        (await owner.put(GROUP_ID, json={"location": "eastus"})).raise_for_status()
        yield Guarded(anybody, owner, app, registered.json()["object_id"], fabric)


def client(service: httpx.ASGITransport) -> httpx.AsyncClient:
    """Return a client that is not signed in."""
    return httpx.AsyncClient(transport=service, base_url="https://azure", params=API)


async def sign_in(somebody: httpx.AsyncClient, client_id: str, secret: str) -> None:
    """Give a client a token."""
    form = {"client_id": client_id, "client_secret": secret, "scope": "https://azure/.default"}
    response = await somebody.post(f"/{TENANT}/oauth2/v2.0/token", data=form)
    token = response.raise_for_status().json()["access_token"]
    somebody.headers["authorization"] = f"Bearer {token}"


def assignment(role: str, principal: str, **properties: str) -> dict[str, Any]:
    """Return the body of a role assignment."""
    definition = f"{HERE}{AUTHORIZATION}/roleDefinitions/{role}"
    return {"properties": {"roleDefinitionId": definition, "principalId": principal} | properties}


def guid(number: int) -> str:
    """Return a GUID that ends with this number, as a name for a role assignment."""
    return f"00000000-0000-0000-0000-{number:012}"


def code(response: httpx.Response) -> str:
    """Azure's word for an error."""
    return str(response.json()["error"]["code"])
