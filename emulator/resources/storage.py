"""Microsoft.Storage: what Azure fills in of accounts, their keys, and their lifecycle rules.

The blobs themselves are elsewhere: with `--blob-endpoint` and `--blob-key` an account's
address and key are those of an Azurite.
"""

import base64
import hashlib

from emulator.core.errors import ArmError, invalid
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft, Json, rows, section

ACTIONS = ("tierToCool", "tierToCold", "tierToArchive", "delete", "enableAutoTierToHotFromCool")
MOST_PREFIXES = 10


def fill_account(draft: Draft) -> None:
    """Add the tier, the region and the address of the blobs."""
    draft.sku["tier"] = str(draft.sku["name"]).partition("_")[0]
    root = draft.fabric.settings.blob_endpoint.rstrip("/")
    name = draft.path.name
    blobs = f"{root}/{name}/" if root else f"https://{name}.blob.core.windows.net/"
    draft.properties["primaryEndpoints"] = {"blob": blobs}
    draft.properties["primaryLocation"] = draft.body["location"]


def list_keys(fabric: Fabric, account: ResourceRow) -> Json:
    """Return the two keys of an account, which are always the same."""
    keys = []
    for name in ("key1", "key2"):
        digest = hashlib.sha512(f"{account.key}/{name}".encode()).digest()
        configured = fabric.settings.blob_key if name == "key1" else ""
        value = configured or base64.b64encode(digest).decode()
        keys.append({"keyName": name, "value": value, "permissions": "FULL"})
    return {"keys": keys}


def fill_policy(draft: Draft) -> None:
    """Check every lifecycle rule, and turn it on."""
    for rule in rows(section(draft.properties, "policy"), "rules"):
        _check_rule(rule)
        rule.setdefault("enabled", True)


def _check_rule(rule: Json) -> None:
    definition = section(rule, "definition")
    if rule.get("type") != "Lifecycle":
        raise _not_allowed(rule.get("type"), "type")
    types = _checked_types(section(definition, "filters"))
    for blob_kind, actions in section(definition, "actions").items():
        if blob_kind not in ("baseBlob", "snapshot", "version"):
            raise _not_allowed(blob_kind, "definition.actions")
        for action, condition in actions.items():
            if action not in ACTIONS:
                raise _not_allowed(action, f"definition.actions.{blob_kind}")
            # Azure tiers and ages block blobs; append blobs it can only delete.
            if "appendBlob" in types and action != "delete":
                raise _not_allowed("appendBlob", f"definition.filters.blobTypes with {action}")
            if isinstance(condition, dict) and not condition:
                raise _not_allowed("null", f"definition.actions.{blob_kind}.{action}")
    if not section(definition, "actions"):
        raise _not_allowed("null", "definition.actions")


def _checked_types(filters: Json) -> list[str]:
    prefixes = filters.get("prefixMatch") or []
    if len(prefixes) > MOST_PREFIXES or not all(isinstance(p, str) and p for p in prefixes):
        raise _not_allowed(prefixes, "definition.filters.prefixMatch")
    types: list[str] = filters.get("blobTypes") or []
    if not types or set(types) - {"blockBlob", "appendBlob"}:
        raise _not_allowed(types, "definition.filters.blobTypes")
    return types


def _not_allowed(value: object, member: str) -> ArmError:
    message = f"The value '{value}' is not allowed for property {member}."
    return invalid(message, "InvalidRequestPropertyValue")
