"""Microsoft.Network as far as nodes need it: networks, and what their subnets name."""

import ipaddress
from itertools import combinations

from emulator.core.errors import invalid
from emulator.resources.kinds import Draft, Json, rows, section

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LINKS = ("networkSecurityGroup", "natGateway", "routeTable")


def fill_network(draft: Draft) -> None:
    """Check the ranges of a network and its subnets, and what the subnets name."""
    prefixes = section(draft.properties, "addressSpace").get("addressPrefixes")
    if not isinstance(prefixes, list) or not prefixes:
        raise invalid(
            "Cannot parse the request: 'addressSpace.addressPrefixes' needs a prefix.",
            "InvalidRequestFormat",
        )
    draft.properties.setdefault("subnets", [])
    draft.properties.setdefault("virtualNetworkPeerings", [])
    draft.properties.setdefault("enableDdosProtection", False)
    space = [_prefix(draft, prefix) for prefix in prefixes]
    subnets = [_subnet(draft, row, space) for row in rows(draft.properties, "subnets")]
    for (_, first), (name, second) in combinations(subnets, 2):
        if first.overlaps(second):
            raise invalid(
                f"Subnet '{name}' is not valid because its IP address range overlaps with that of "
                f"an existing subnet in virtual network '{draft.path.name}'.",
                "NetcfgSubnetRangesOverlap",
            )


def _subnet(draft: Draft, subnet: Json, space: list[Network]) -> tuple[str, Network]:
    """Return name and range of a subnet that is inside the network, or raise ArmError."""
    name, properties = str(subnet.get("name") or ""), section(subnet, "properties")
    prefixes = properties.get("addressPrefixes") or [properties.get("addressPrefix")]
    prefix = _prefix(draft, prefixes[0])
    if not any(_within(prefix, outer) for outer in space):
        raise invalid(
            f"Subnet '{name}' is not valid because its IP address range is outside the IP address "
            f"range of virtual network '{draft.path.name}'.",
            "NetcfgInvalidSubnet",
        )
    for link in LINKS:
        if properties.get(link):
            draft.need(section(properties, link).get("id"))
    return name, prefix


def _within(prefix: Network, outer: Network) -> bool:
    return prefix.version == outer.version and prefix.subnet_of(outer)  # type: ignore[arg-type] # the same version


def _prefix(draft: Draft, text: object) -> Network:
    try:
        network = ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        raise invalid(
            f"Address prefix {text} of resource {draft.path.id} is not formatted correctly. It "
            "should follow CIDR notation, for example 10.0.0.0/24.",
            "InvalidAddressPrefixFormat",
        ) from None
    if str(text) != str(network):
        raise invalid(
            f"The address prefix {text} in resource {draft.path.id} has an invalid CIDR notation. "
            f"For the given prefix length, the address prefix should be {network}.",
            "InvalidCIDRNotation",
        )
    return network


# azure-rest-api-specs, Microsoft.Network, NetworkSecurityGroupCreateWithRule.json.
DEFAULT_RULES = (  # name, priority, source, destination, description: access and direction too
    ("AllowVnetInBound", 65000, "VirtualNetwork", "VirtualNetwork",
     "Allow inbound traffic from all VMs in VNET"),
    ("AllowAzureLoadBalancerInBound", 65001, "AzureLoadBalancer", "*",
     "Allow inbound traffic from azure load balancer"),
    ("DenyAllInBound", 65500, "*", "*", "Deny all inbound traffic"),
    ("AllowVnetOutBound", 65000, "VirtualNetwork", "VirtualNetwork",
     "Allow outbound traffic from all VMs to all VMs in VNET"),
    ("AllowInternetOutBound", 65001, "*", "Internet",
     "Allow outbound traffic from all VMs to Internet"),
    ("DenyAllOutBound", 65500, "*", "*", "Deny all outbound traffic"),
)  # fmt: skip


def _default_rule(name: str, priority: int, source: str, target: str, description: str) -> Json:
    properties = {
        "description": description,
        "protocol": "*",
        "sourcePortRange": "*",
        "destinationPortRange": "*",
        "sourceAddressPrefix": source,
        "destinationAddressPrefix": target,
        "access": description.split(maxsplit=1)[0],
        "priority": priority,
        "direction": "Inbound" if "inbound" in description else "Outbound",
    }
    return {"name": name, "properties": properties}


def fill_group(draft: Draft) -> None:
    """Add the rules that every security group has."""
    draft.properties.setdefault("securityRules", [])
    draft.properties["defaultSecurityRules"] = [_default_rule(*row) for row in DEFAULT_RULES]


def fill_address(draft: Draft) -> None:
    """Add the usual SKU and properties of a public address."""
    draft.body["sku"] = {"name": "Standard", "tier": "Regional"} | draft.sku
    defaults = {"publicIPAddressVersion": "IPv4", "idleTimeoutInMinutes": 4, "ipTags": []}
    draft.body["properties"] = defaults | draft.properties


def check_gateway(draft: Draft) -> None:
    """Raise ArmError for a public address that is not there."""
    for address in rows(draft.properties, "publicIpAddresses"):
        draft.need(address.get("id"))
