"""The one tenant, and who can sign in to it: registered principals and user-assigned identities."""

import hashlib
import hmac
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from emulator.core.state import EmulatorState, ResourceRow, ScaleSetRow
from emulator.fabric import Fabric

TENANT = "11111111-1111-1111-1111-111111111111"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
REGISTERED = "Microsoft.Graph/servicePrincipals"
IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
_OBJECT_IDS = uuid.UUID("22222222-2222-2222-2222-222222222222")  # uuid5's namespace


@dataclass(frozen=True)
class Principal:
    """A principal, to which tokens are given and roles are assigned."""

    client_id: str
    object_id: str
    name: str
    resource_id: str = ""  # of a managed identity


def register(fabric: Fabric, client_id: str, secret: str, name: str) -> Principal:
    """Let a principal sign in with this secret and no other; a second time replaces it."""
    resource = ResourceRow(
        id=_key(client_id),
        type=REGISTERED,
        location="global",
        body={
            "appId": client_id,
            "id": object_id_of(client_id),
            "displayName": name or client_id,
            "secretSha256": _digest(secret) if secret else "",
        },
        created_at=fabric.now(),
    )
    fabric.state.put(resource)
    fabric.changed()
    return _registered(resource)


def stranger(client_id: str) -> Principal:
    """One that was never registered; it always has the same object id."""
    return Principal(client_id, object_id_of(client_id), client_id)


def object_id_of(client_id: str) -> str:
    """Return the object id of an application's principal, the same in every emulator."""
    return str(uuid.uuid5(_OBJECT_IDS, client_id.lower()))


def principals(state: EmulatorState) -> Iterator[Principal]:
    """Everybody in the directory."""
    for resource in state.resources.values():
        if resource.type == REGISTERED:
            yield _registered(resource)
        elif resource.type.lower() == IDENTITY.lower():
            yield identity(resource)
    yield from (of_system(s) for s in state.scale_sets.values() if has_system(s))


def by_client(state: EmulatorState, client_id: str) -> Principal | None:
    """Return the principal with this client id."""
    if resource := state.resources.get(_key(client_id)):
        return _registered(resource)
    target = client_id.lower()
    return next((p for p in principals(state) if p.client_id.lower() == target), None)


def by_object(state: EmulatorState, object_id: str) -> Principal | None:
    """Return the principal with this object id."""
    target = object_id.lower()
    return next((p for p in principals(state) if p.object_id.lower() == target), None)


def identity(resource: ResourceRow) -> Principal:
    """Return the principal behind a user-assigned identity."""
    properties = resource.body["properties"]
    return Principal(properties["clientId"], properties["principalId"], resource.name, resource.id)


def has_system(scale_set: ScaleSetRow) -> bool:
    """Whether Azure made an identity for this scale set alone."""
    model = scale_set.model.get("identity") or {}
    return "systemassigned" in str(model.get("type")).lower()


def of_system(scale_set: ScaleSetRow) -> Principal:
    """Return the principal of a scale set's system-assigned identity."""

    def drawn(kind: str) -> str:
        return str(uuid.uuid5(_OBJECT_IDS, f"{kind} of {scale_set.unique_id}"))

    return Principal(drawn("client"), drawn("object"), scale_set.name, scale_set.id)


def secret_fits(state: EmulatorState, principal: Principal, secret: str) -> bool:
    """Whether the secret is the one that was registered."""
    resource = state.resources.get(_key(principal.client_id))
    expected = str(resource.body["secretSha256"]) if resource else ""
    return bool(expected) and hmac.compare_digest(expected, _digest(secret))


def _registered(resource: ResourceRow) -> Principal:
    body = resource.body
    return Principal(body["appId"], body["id"], body["displayName"])


def _key(client_id: str) -> str:
    return f"/servicePrincipals/{client_id}".lower()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
