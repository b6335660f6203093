"""Microsoft.KeyVault: vaults, and secrets as ARM writes them (it never shows their values)."""

import re

from emulator.resources.kinds import Draft, ResourceKind, section

VAULTS = "Microsoft.KeyVault/vaults"
OLDEST = "2016-10-01"


def _check_vault(draft: Draft) -> None:
    properties, name = draft.properties, draft.path.name
    if draft.name_taken:
        message = f"The vault name '{name}' is already in use. Vault names are globally unique."
        raise draft.refuse("VaultAlreadyExists", message, 409)
    if not re.fullmatch(r"[0-9a-fA-F-]{36}", str(properties.get("tenantId"))):
        raise draft.refuse("BadRequest", "The parameter tenantId is missing or no GUID.")
    sku = section(properties, "sku")
    if str(sku.get("name")).lower() not in ("standard", "premium") or sku.get("family") != "A":
        raise draft.refuse("BadRequest", "The sku must be standard or premium of family A.")
    properties["enableSoftDelete"] = True  # whatever is asked for
    if not properties.get("enableRbacAuthorization") and "accessPolicies" not in properties:
        raise draft.refuse("BadRequest", "The parameter accessPolicies is not specified.")
    properties["vaultUri"] = f"https://{name.lower()}.vault.azure.net/"


def _check_secret(draft: Draft) -> None:
    value = draft.properties.pop("value", None)
    if draft.old is None and value is None:
        raise draft.refuse("BadRequest", "The parameter value is not specified.")
    vault, name = draft.path.names
    uri = f"https://{vault.lower()}.vault.azure.net/secrets/{name}"
    draft.properties["secretUri"] = uri


KINDS = (
    ResourceKind(
        type=VAULTS,
        oldest=OLDEST,
        check=_check_vault,
        name=r"(?!.*--)[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]",
        bad_name=(
            "VaultNameNotValid",
            "The vault name '{}' is invalid. A vault's name must be between 3-24 alphanumeric "
            "characters. The name must begin with a letter, end with a letter or digit, and not "
            "contain consecutive hyphens.",
        ),
    ),
    ResourceKind(
        type=f"{VAULTS}/secrets", oldest=OLDEST, check=_check_secret, name=r"[A-Za-z0-9-]{1,127}"
    ),
)
