"""The first principal of an emulator that enforces access: Owner of the subscription."""

import json
import secrets
from pathlib import Path

from emulator.access.assignments import ASSIGNMENT
from emulator.access.identity import directory
from emulator.access.roles import DEFINITION, OWNER
from emulator.core.private_files import write_private
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

NAME = "emulator-owner"


def install(fabric: Fabric) -> Path:
    """Make the owner once, and say where its secret is written; a restart changes nothing.

    The file is written last of all: where it is, the rest is.
    """
    file = fabric.settings.folder / "access" / "owner.json"
    if file.exists():
        return file
    secret = secrets.token_urlsafe(24)
    owner = directory.register(fabric, directory.object_id_of(NAME), secret, NAME)
    fabric.state.put(_assignment(owner.object_id, fabric.now()))
    fabric.changed()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = {
        "tenant_id": directory.TENANT,
        "subscription_id": directory.SUBSCRIPTION,
        "client_id": owner.client_id,
        "client_secret": secret,
        "object_id": owner.object_id,
    }
    write_private(file, (json.dumps(facts, indent=2) + "\n").encode())
    return file


def _assignment(object_id: str, now: float) -> ResourceRow:
    scope = f"/subscriptions/{directory.SUBSCRIPTION}"
    return ResourceRow(
        id=f"{scope}/providers/{ASSIGNMENT}/{directory.object_id_of('owner of ' + object_id)}",
        type=ASSIGNMENT,
        location="global",
        body={
            "properties": {
                "roleDefinitionId": f"{scope}/providers/{DEFINITION}/{OWNER}",
                "principalId": object_id,
                "principalType": "ServicePrincipal",
                "scope": scope,
            }
        },
        created_at=now,
    )
