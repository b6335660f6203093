"""Which action over which scope a request is, in the words of Azure's role definitions."""

import re
from dataclasses import dataclass

VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
# The caller that began an operation may poll it, with a role in one resource group only. Every
# caller may ask for its permissions, the tenant's offers, and the groups that it may see.
_FREE = re.compile(
    r"/(subscriptions|tenants)"
    r"|/providers(/.*)?"
    r"|/subscriptions/[^/]+/operationresults/.*"
    r"|/subscriptions/[^/]+/resourcegroups"
    r"|.*/locations/[^/]+/[a-z]*operations?(results|status|statuses)?/.*"
    r"|.*/providers/microsoft\.authorization/permissions",
    re.IGNORECASE,
)
# Lists over a subscription whose rows have ids, and are answered by `front_door.page`: who may
# not see all of one sees a part. A list in a group needs its action, and that of all its resources
# shows what the caller may read of each type too; other lists in a group are shown whole.
_LIST = re.compile(
    r"/subscriptions/[^/]+/(resources|providers/microsoft\."
    r"(compute/virtualmachine(scaleset)?s"
    r"|(containerregistry|dbforpostgresql|keyvault|network|storage)/[^/]+"
    r"|machinelearningservices/workspaces|managedidentity/userassignedidentities))",
    re.IGNORECASE,
)
_IN_SUBSCRIPTION = re.compile(
    r"(?P<scope>/subscriptions/[^/]+(?:/(?P<group>resourcegroups)(?:/[^/]+)?)?)(?P<rest>/.*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Need:
    """A permission that is needed."""

    action: str  # "Microsoft.Compute/virtualMachineScaleSets/write"
    scope: str


def needed(method: str, path: str) -> Need | None:
    """Return the permission that a request needs; None if any signed-in caller may make it."""
    path = path.rstrip("/")
    if _FREE.fullmatch(path):
        return None
    before, marker, after = path.rpartition("/providers/")
    if marker and "/" in after:
        return _of_provider(method, before, after.split("/"), path)
    if marker:
        return Need("Microsoft.Resources/subscriptions/providers/read", before)
    return _of_resources(method, path)


def lists(method: str, path: str) -> bool:
    """Whether a request is for a list that can be shown in part."""
    return method == "GET" and bool(_LIST.fullmatch(path.rstrip("/")))


def type_of(resource_id: str) -> str:
    """Return the type in a resource id, such as "Microsoft.Network/virtualNetworks/subnets"."""
    _, _, after = resource_id.rpartition("/providers/")
    namespace, *parts = after.split("/")
    return "/".join([namespace, *parts[::2]])


def _of_provider(method: str, before: str, parts: list[str], path: str) -> Need:
    namespace, *segments = parts
    types, odd = "/".join(segments[::2]), len(segments) % 2 == 1
    verb = VERBS.get(method, "action")
    # Cost queries are posted, but only read.
    if f"{namespace}/{types}".lower() == "microsoft.costmanagement/query":
        verb = "read"
    if not odd:
        scope = path
    elif len(segments) > 1:  # an action on a resource, or a list in one
        scope = path.rpartition("/")[0]
    else:
        scope = f"{before}/providers/{namespace}" if verb == "read" and method != "POST" else before
    return Need(f"{namespace}/{types}/{verb}", scope)


def _of_resources(method: str, path: str) -> Need:
    """Subscriptions, resource groups, and what hangs on them without a provider."""
    verb = VERBS.get(method, "action")
    match = _IN_SUBSCRIPTION.fullmatch(path)
    if not match:
        return Need(f"Microsoft.Resources/{verb}", path)
    kind = "Microsoft.Resources/subscriptions"
    kind += "/resourcegroups" if match["group"] else ""
    remainder = (match["rest"] or "").strip("/")
    scope = re.sub(r"/resourcegroups$", "", match["scope"], flags=re.IGNORECASE)
    middle = "/".join(remainder.split("/")[::2])
    return Need(f"{kind}/{middle}/{verb}" if middle else f"{kind}/{verb}", scope)
