"""Every resource type that this package keeps, as a table, and the refusal of all others.

Compute, identities, roles and deployments have modules and routes of their own. Behind these types
there is nothing: no server, no image, no traffic, and no vault (which never shows its secrets).
"""

import re
from operator import attrgetter

from emulator.compute.rules.scale_set_rules import is_weak
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError
from emulator.core.rules import Rule
from emulator.resources import load_balancers, networks, storage
from emulator.resources.kinds import Draft, ResourceKind, rows, section
from emulator.resources.resource_ids import ResourcePath

ACCOUNTS = "Microsoft.Storage/storageAccounts"
SERVERS = "Microsoft.DBforPostgreSQL/flexibleServers"
VAULTS = "Microsoft.KeyVault/vaults"
ACCOUNT_KINDS = ("Storage", "StorageV2", "BlobStorage", "FileStorage", "BlockBlobStorage")
ACCOUNT_SKUS = (
    *("Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"),
    *("Premium_ZRS", "Standard_GZRS", "Standard_RAGZRS"),
)
ACCESS_TIERS = ("Hot", "Cool", "Cold", "Premium")
SERVER_TIERS = {
    "Burstable": "Standard_B",
    "GeneralPurpose": "Standard_D",
    "MemoryOptimized": "Standard_E",
}
BAD_VALUE, BAD = "InvalidRequestPropertyValue", "BadRequest"
_taken = attrgetter("name_taken")


def _unless_in(value: object, allowed: tuple[str, ...]) -> list[object]:
    return [] if value in allowed else [value]


def _has_weak_password(draft: Draft) -> bool:
    password = draft.properties.get("administratorLoginPassword")
    if draft.old and password is None:
        return False
    login = str(draft.properties.get("administratorLogin")).lower()
    return is_weak(password, 8, 128) or login in str(password).lower()


def _size_of_another_tier(draft: Draft) -> list[object]:
    size, tier = draft.sku.get("name"), draft.sku.get("tier")
    begins = SERVER_TIERS.get(str(tier))
    return [] if begins and str(size).startswith(begins) else [size, tier]


def _has_bad_vault_sku(draft: Draft) -> bool:
    sku = section(draft.properties, "sku")
    return str(sku.get("name")).lower() not in ("standard", "premium") or sku.get("family") != "A"


def _fill_registry(draft: Draft) -> None:
    draft.sku["tier"] = draft.sku["name"]
    draft.properties["loginServer"] = f"{draft.name}.azurecr.io"


def _fill_server(draft: Draft) -> None:
    host = f"{draft.path.name}.postgres.database.azure.com"
    draft.properties.update(fullyQualifiedDomainName=host, state="Ready")


def _fill_vault(draft: Draft) -> None:
    uri = f"https://{draft.name}.vault.azure.net/"
    draft.properties.update(enableSoftDelete=True, vaultUri=uri)  # whatever is asked for


def _fill_secret(draft: Draft) -> None:
    vault, name = draft.path.names
    draft.properties["secretUri"] = f"https://{vault.lower()}.vault.azure.net/secrets/{name}"


ALL = (
    *(ResourceKind(type=f"Microsoft.Compute/{name}", oldest="2019-07-01")
      for name in ("diskEncryptionSets", "proximityPlacementGroups")),
    *(ResourceKind(type=f"Microsoft.Network/{name}", oldest=oldest, fill=fill)
      for name, oldest, fill in (
          ("loadBalancers", "2015-06-15", load_balancers.fill_in),
          ("loadBalancers/inboundNatRules", "2015-06-15", None),
          ("virtualNetworks", "2015-06-15", networks.fill_network),
          ("virtualNetworks/subnets", "2015-06-15", None),
          ("networkSecurityGroups", "2015-06-15", networks.fill_group),
          ("publicIPAddresses", "2015-06-15", networks.fill_address),
          ("natGateways", "2019-02-01", networks.check_gateway),
      )),
    ResourceKind(
        type="Microsoft.ContainerRegistry/registries",
        oldest="2017-10-01",
        name=r"[A-Za-z0-9]{5,50}",
        bad_name=("InvalidResourceName", "Registry name {} is not 5 to 50 letters and digits."),
        rules=(
            Rule(_taken, "The registry DNS name {w.name}.azurecr.io is already in use.",
                 "AlreadyInUse", status=409),
            Rule(lambda d: _unless_in(d.sku.get("name"), ("Basic", "Standard", "Premium")),
                 "The registry SKU '{0[0]}' is not supported.", "InvalidSku"),
        ),
        defaults={"adminUserEnabled": False, "publicNetworkAccess": "Enabled"},
        fill=_fill_registry,
    ),
    ResourceKind(
        type=SERVERS,
        oldest="2021-06-01",
        name=r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
        rules=(
            Rule(_has_weak_password,
                 "Password validation failed. The password does not meet policy requirements "
                 "because it is not complex enough.", "PasswordNotComplex"),
            Rule(_size_of_another_tier,
                 "The size {0[0]} is not one of the tier {0[1]}; the tiers are "
                 f"{', '.join(SERVER_TIERS)}.", "InvalidParameterValue"),
        ),
        secrets=("administratorLoginPassword",),
        fill=_fill_server,
    ),
    *(ResourceKind(type=f"{SERVERS}/{part}", oldest="2021-06-01")
      for part in ("databases", "firewallRules", "configurations")),
    ResourceKind(
        type=ACCOUNTS,
        oldest="2018-07-01",
        name=r"[a-z0-9]{3,24}",
        bad_name=(
            "AccountNameInvalid",
            "{} is not a valid storage account name. Storage account name must be between 3 and 24 "
            "characters in length and use numbers and lower-case letters only.",
        ),
        rules=(
            Rule(_taken, "The storage account named {w.name} is already taken.",
                 "StorageAccountAlreadyTaken", status=409),
            Rule(lambda d: _unless_in(d.body.setdefault("kind", "StorageV2"), ACCOUNT_KINDS),
                 "The value '{0[0]}' is not allowed for property kind.", BAD_VALUE),
            Rule(lambda d: _unless_in(d.sku.get("name"), ACCOUNT_SKUS),
                 "The value '{0[0]}' is not allowed for property sku.name.", BAD_VALUE),
            Rule(lambda d: _unless_in(d.properties.get("accessTier", "Hot"), ACCESS_TIERS),
                 "The value '{0[0]}' is not allowed for property properties.accessTier.",
                 BAD_VALUE),
        ),
        defaults={"accessTier": "Hot", "allowSharedKeyAccess": True},
        fill=storage.fill_account,
        created=200,  # or 202, says the specification of Microsoft.Storage; never 201
        actions={"listkeys": storage.list_keys},
    ),
    ResourceKind(type=f"{ACCOUNTS}/blobServices", oldest="2018-07-01", name="default", created=200),
    ResourceKind(
        type=f"{ACCOUNTS}/managementPolicies",
        oldest="2018-07-01",
        name="default",
        rules=(
            Rule(lambda d: not rows(section(d.properties, "policy"), "rules"),
                 "The value 'null' is not allowed for property rules.", BAD_VALUE),
        ),
        fill=storage.fill_policy,
        created=200,
    ),
    ResourceKind(
        type=VAULTS,
        oldest="2016-10-01",
        name=r"(?!.*--)[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]",
        bad_name=(
            "VaultNameNotValid",
            "The vault name '{}' is invalid. A vault's name must be between 3-24 alphanumeric "
            "characters. The name must begin with a letter, end with a letter or digit, and not "
            "contain consecutive hyphens.",
        ),
        rules=(
            Rule(_taken, "The vault name '{w.path.name}' is already in use. Vault names are "
                 "globally unique.", "VaultAlreadyExists", status=409),
            Rule(lambda d: not re.fullmatch(r"[0-9a-fA-F-]{36}", str(d.properties.get("tenantId"))),
                 "The parameter tenantId is missing or no GUID.", BAD),
            Rule(_has_bad_vault_sku, "The sku must be standard or premium of family A.", BAD),
            Rule(lambda d: not d.properties.get("enableRbacAuthorization")
                 and "accessPolicies" not in d.properties,
                 "The parameter accessPolicies is not specified.", BAD),
        ),
        fill=_fill_vault,
    ),
    ResourceKind(
        type=f"{VAULTS}/secrets",
        oldest="2016-10-01",
        name=r"[A-Za-z0-9-]{1,127}",
        rules=(
            Rule(lambda d: d.old is None and d.properties.get("value") is None,
                 "The parameter value is not specified.", BAD),
        ),
        secrets=("value",),
        fill=_fill_secret,
    ),
)  # fmt: skip
KINDS: dict[str, ResourceKind] = {kind.type.lower(): kind for kind in ALL}
ELSEWHERE = {
    *("microsoft.authorization", "microsoft.compute", "microsoft.machinelearningservices"),
    *("microsoft.managedidentity", "microsoft.resources"),
}
NAMESPACES = {kind.type.partition("/")[0].lower() for kind in ALL} | ELSEWHERE


def find(path: ResourcePath, version: str) -> ResourceKind:
    """Return the kind that the path names, or raise ArmError for an unknown one."""
    namespace, kind = path.namespace.lower(), KINDS.get(path.type.lower())
    if namespace not in NAMESPACES:
        text = f"The resource namespace '{path.namespace}' is invalid."
        raise ArmError(404, "InvalidResourceNamespace", text)
    if kind is None and namespace in ELSEWHERE:
        raise ArmError(404, "NotFound", f"This emulator does not offer {path.id}.")
    if kind is None:
        raise ArmError(
            404,
            "InvalidResourceType",
            f"The resource type '{'/'.join(path.types)}' could not be found in the namespace "
            f"'{path.namespace}' for api version '{version}'. The supported api-versions are ''.",
        )
    if not re.fullmatch(r"20\d\d-\d\d-\d\d(-\w+)?", version) or version < kind.oldest:
        raise ArmError(
            400,
            "NoRegisteredProviderFound",
            "No registered resource provider found for location '' and API version "
            f"'{version}' for type '{kind.type.partition('/')[2]}'. The supported api-versions "
            f"are '{kind.oldest}' and later. The supported locations are "
            f"'{', '.join(sorted(catalog().locations))}'.",
        )
    return kind
