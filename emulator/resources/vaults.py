"""Microsoft.KeyVault: vaults, and secrets as ARM writes them (it never shows their values)."""

import hashlib
import re

from emulator.errors import ArmError
from emulator.resources.kinds import Draft, Kind, section

VAULTS = "Microsoft.KeyVault/vaults"
OLDEST = "2016-10-01"


def _check_vault(draft: Draft) -> None:
    properties, name = draft.properties, draft.path.name
    for other in draft.fabric.state.resources.values():
        same = other.type == VAULTS and other.name.lower() == name.lower()
        if same and other.key != draft.path.key:
            raise draft.refuse(
                "VaultAlreadyExists",
                f"The vault name '{name}' is already in use. Vault names are globally unique so "
                "it is possible that the name is already taken.",
                409,
            )
    if not re.fullmatch(r"[0-9a-fA-F-]{36}", str(properties.get("tenantId"))):
        raise draft.refuse("BadRequest", "The parameter tenantId is missing or no GUID.")
    sku = section(properties, "sku")
    if str(sku.get("name")).lower() not in ("standard", "premium") or sku.get("family") != "A":
        raise draft.refuse("BadRequest", "The sku must be standard or premium of family A.")
    # Deletion can always be undone, whatever is asked for; purge protection stays once it is on.
    properties["enableSoftDelete"] = True
    properties.setdefault("softDeleteRetentionInDays", 90)
    before = draft.old.body["properties"] if draft.old else {}
    if before.get("enablePurgeProtection"):
        properties.setdefault("enablePurgeProtection", True)
    if properties.get("enablePurgeProtection") is False:  # leave it out instead
        raise draft.refuse(
            "BadRequest",
            'The property "enablePurgeProtection" cannot be set to false. Enabling the purge '
            "protection for a vault is an irreversible action.",
        )
    if not properties.get("enableRbacAuthorization") and "accessPolicies" not in properties:
        raise draft.refuse("BadRequest", "The parameter accessPolicies is not specified.")
    properties.setdefault("accessPolicies", [])
    properties["vaultUri"] = f"https://{name.lower()}.vault.azure.net/"


def _check_secret(draft: Draft) -> None:
    value = draft.properties.pop("value", None)
    if draft.old is None and value is None:
        raise draft.refuse("BadRequest", "The parameter value is not specified.")
    vault, name = draft.path.names
    uri = f"https://{vault.lower()}.vault.azure.net/secrets/{name}"
    seen = hashlib.sha256(f"{uri}/{value}".encode()).hexdigest()[:32]
    draft.properties.setdefault("attributes", {"enabled": True})
    draft.properties["secretUri"] = uri
    draft.properties["secretUriWithVersion"] = f"{uri}/{seen}"


def _bad_name(name: str) -> ArmError:
    return ArmError(
        400,
        "VaultNameNotValid",
        f"The vault name '{name}' is invalid. A vault's name must be between 3-24 alphanumeric "
        "characters. The name must begin with a letter, end with a letter or digit, and not "
        "contain consecutive hyphens. Follow this link for more information: "
        "https://go.microsoft.com/fwlink/?linkid=2147742",
    )


KINDS = (
    Kind(
        type=VAULTS,
        oldest=OLDEST,
        check=_check_vault,
        name=r"(?!.*--)[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]",
        name_refusal=_bad_name,
    ),
    Kind(type=f"{VAULTS}/secrets", oldest=OLDEST, check=_check_secret, name=r"[A-Za-z0-9-]{1,127}"),
)
