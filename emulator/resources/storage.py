"""Microsoft.Storage: accounts, their lifecycle rules, and their keys.

The blobs themselves are elsewhere: with `--blob-endpoint` and `--blob-key` an account's
address and key are those of an Azurite.
"""

import base64
import hashlib

from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft, Json, ResourceKind, no_check, rows, section

ACCOUNTS = "Microsoft.Storage/storageAccounts"
ACCOUNT_KINDS = ("Storage", "StorageV2", "BlobStorage", "FileStorage", "BlockBlobStorage")
SKUS = (
    *("Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"),
    *("Premium_ZRS", "Standard_GZRS", "Standard_RAGZRS"),
)
ACTIONS = ("tierToCool", "tierToCold", "tierToArchive", "delete", "enableAutoTierToHotFromCool")
MOST_PREFIXES = 10
OLDEST = "2018-07-01"


def _check_account(draft: Draft) -> None:
    name = draft.path.name
    if draft.name_taken:
        message = f"The storage account named {name} is already taken."
        raise draft.refuse("StorageAccountAlreadyTaken", message, 409)
    if draft.body.setdefault("kind", "StorageV2") not in ACCOUNT_KINDS:
        raise _not_allowed(draft.body["kind"], "kind")
    if draft.sku.get("name") not in SKUS:
        raise _not_allowed(draft.sku.get("name"), "sku.name")
    draft.sku["tier"] = str(draft.sku["name"]).partition("_")[0]
    tier = draft.properties.setdefault("accessTier", "Hot")
    if tier not in ("Hot", "Cool", "Cold", "Premium"):
        raise _not_allowed(tier, "properties.accessTier")
    draft.properties.setdefault("allowSharedKeyAccess", True)
    draft.properties["primaryEndpoints"] = {"blob": blob_endpoint(draft.fabric, name)}
    draft.properties["primaryLocation"] = draft.body["location"]


def blob_endpoint(fabric: Fabric, name: str) -> str:
    """Where the blobs of an account are."""
    if root := fabric.settings.blob_endpoint:
        return f"{root.rstrip('/')}/{name}/"
    return f"https://{name}.blob.core.windows.net/"


def _list_keys(fabric: Fabric, account: ResourceRow) -> Json:
    keys = [_key(fabric, account, name) for name in ("key1", "key2")]
    return {"keys": keys}


def _key(fabric: Fabric, account: ResourceRow, name: str) -> Json:
    made = base64.b64encode(hashlib.sha512(f"{account.key}/{name}".encode()).digest()).decode()
    value = fabric.settings.blob_key if name == "key1" and fabric.settings.blob_key else made
    return {"keyName": name, "value": value, "permissions": "FULL"}


def _check_policy(draft: Draft) -> None:
    rules = rows(section(draft.properties, "policy"), "rules")
    if not rules:
        raise draft.refuse(
            "InvalidRequestPropertyValue", "The value 'null' is not allowed for property rules."
        )
    for rule in rules:
        _check_rule(rule)
        rule.setdefault("enabled", True)


def _check_rule(rule: Json) -> None:
    definition = section(rule, "definition")
    if rule.get("type") != "Lifecycle":
        raise _not_allowed(rule.get("type"), "type")
    types = _checked_types(section(definition, "filters"))
    for what, actions in section(definition, "actions").items():
        if what not in ("baseBlob", "snapshot", "version"):
            raise _not_allowed(what, "definition.actions")
        for action, when in actions.items():
            if action not in ACTIONS:
                raise _not_allowed(action, f"definition.actions.{what}")
            # Azure tiers and ages block blobs; append blobs it can only delete.
            if "appendBlob" in types and action != "delete":
                raise _not_allowed("appendBlob", f"definition.filters.blobTypes with {action}")
            if isinstance(when, dict) and not when:
                raise _not_allowed("null", f"definition.actions.{what}.{action}")
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


def _not_allowed(value: object, where: str) -> ArmError:
    return ArmError(
        400,
        "InvalidRequestPropertyValue",
        f"The value '{value}' is not allowed for property {where}.",
    )


KINDS = (
    ResourceKind(
        type=ACCOUNTS,
        oldest=OLDEST,
        check=_check_account,
        name=r"[a-z0-9]{3,24}",
        bad_name=(
            "AccountNameInvalid",
            "{} is not a valid storage account name. Storage account name must be between 3 and 24 "
            "characters in length and use numbers and lower-case letters only.",
        ),
        created=200,  # or 202, says the specification of Microsoft.Storage; never 201
        actions={"listkeys": _list_keys},
    ),
    ResourceKind(
        type=f"{ACCOUNTS}/blobServices",
        oldest=OLDEST,
        check=no_check,
        name="default",
        created=200,
    ),
    ResourceKind(
        type=f"{ACCOUNTS}/managementPolicies",
        oldest=OLDEST,
        check=_check_policy,
        name="default",
        created=200,
    ),
)
