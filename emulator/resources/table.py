"""Every resource type that this package keeps, and the refusal of all others.

Compute, identities, roles and deployments have modules and routes of their own.
"""

import re

from emulator.core.catalog import catalog
from emulator.core.errors import ArmError
from emulator.resources import databases, networks, registries, storage, vaults
from emulator.resources.kinds import ResourceKind, no_check
from emulator.resources.resource_ids import ResourcePath

MODULES = (databases, networks, registries, storage, vaults)
NAMED_BY_SCALE_SETS = tuple(
    ResourceKind(type=f"Microsoft.Compute/{name}", oldest="2019-07-01", check=no_check)
    for name in ("diskEncryptionSets", "proximityPlacementGroups")
)
ALL = (*NAMED_BY_SCALE_SETS, *(kind for module in MODULES for kind in module.KINDS))
KINDS: dict[str, ResourceKind] = {kind.type.lower(): kind for kind in ALL}

ELSEWHERE = {
    "microsoft.authorization",
    "microsoft.compute",
    "microsoft.machinelearningservices",
    "microsoft.managedidentity",
    "microsoft.resources",
}


def find(path: ResourcePath, version: str) -> ResourceKind:
    """Return the kind that the path names, or raise ArmError for an unknown one."""
    namespaces = {kind.type.partition("/")[0].lower() for kind in KINDS.values()} | ELSEWHERE
    if path.namespace.lower() not in namespaces:
        raise ArmError(
            404,
            "InvalidResourceNamespace",
            f"The resource namespace '{path.namespace}' is invalid.",
        )
    kind = KINDS.get(path.type.lower())
    if kind is None and path.namespace.lower() in ELSEWHERE:
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
