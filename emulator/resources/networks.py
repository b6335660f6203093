"""Microsoft.Network as far as nodes need it: networks, security groups, a way out."""

import copy
import ipaddress

from emulator.errors import ArmError
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft, Json, Kind, no_check, rows, section
from emulator.scale_set_rules import subnets
from emulator.state import Resource

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
OLDEST = "2015-06-15"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
NETWORKS = "Microsoft.Network/virtualNetworks"


def _check_network(draft: Draft) -> None:
    space = section(draft.properties, "addressSpace").get("addressPrefixes") or []
    if not isinstance(space, list) or not space:
        raise draft.refuse(
            "InvalidRequestFormat",
            "Cannot parse the request: 'addressSpace.addressPrefixes' needs a prefix.",
        )
    prefixes = [_prefix(draft, prefix) for prefix in space]
    old = draft.old.body["properties"] if draft.old else {}
    draft.properties.setdefault("subnets", copy.deepcopy(old.get("subnets", [])))
    taken: list[tuple[str, Network]] = []
    for subnet in rows(draft.properties, "subnets"):
        taken += _check_subnet(draft, subnet, prefixes, taken)
    draft.properties.setdefault("enableDdosProtection", False)
    _keep_used(draft, {name.lower() for name, _ in taken})


def _check_subnet(
    draft: Draft, subnet: Json, space: list[Network], taken: list[tuple[str, Network]]
) -> list[tuple[str, Network]]:
    """Fill a subnet in and return what it takes, or raise ArmError."""
    name, properties = str(subnet.get("name") or ""), subnet.setdefault("properties", {})
    if not name:
        raise draft.refuse(
            "InvalidRequestFormat", "Cannot parse the request: a subnet has no name."
        )
    given = properties.get("addressPrefixes") or [properties.get("addressPrefix")]
    mine = [(name, _prefix(draft, prefix)) for prefix in given]
    where = f"virtual network '{draft.path.names[0]}'"
    for _, prefix in mine:
        if not any(_within(prefix, outer) for outer in space):
            raise draft.refuse(
                "NetcfgInvalidSubnet",
                f"Subnet '{name}' is not valid because its IP address range is outside the IP "
                f"address range of {where}.",
            )
        if any(prefix.overlaps(other) for _, other in taken):
            raise draft.refuse(
                "NetcfgSubnetRangesOverlap",
                f"Subnet '{name}' is not valid because its IP address range overlaps with that of "
                f"an existing subnet in {where}.",
            )
    for link in ("networkSecurityGroup", "natGateway", "routeTable"):
        if properties.get(link):
            draft.need(section(properties, link).get("id"))
    properties.setdefault("privateEndpointNetworkPolicies", "Disabled")
    properties.setdefault("privateLinkServiceNetworkPolicies", "Enabled")
    properties.setdefault("delegations", [])
    return mine


def _within(prefix: Network, outer: Network) -> bool:
    if isinstance(prefix, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and prefix.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and prefix.subnet_of(outer)


def _prefix(draft: Draft, text: object) -> Network:
    try:
        network = ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        raise draft.refuse(
            "InvalidAddressPrefixFormat",
            f"Address prefix {text} of resource {draft.path.id} is not formatted correctly. It "
            "should follow CIDR notation, for example 10.0.0.0/24.",
        ) from None
    if str(text) != str(network):
        raise draft.refuse(
            "InvalidCIDRNotation",
            f"The address prefix {text} in resource {draft.path.id} has an invalid CIDR notation. "
            f"For the given prefix length, the address prefix should be {network}.",
        )
    return network


def _keep_used(draft: Draft, kept: set[str]) -> None:
    """A subnet with machines in it cannot go."""
    for subnet in draft.old.body["properties"].get("subnets", []) if draft.old else []:
        if str(subnet["name"]).lower() not in kept:
            forbid_while_used(draft.fabric, f"{draft.path.id}/subnets/{subnet['name']}")


def forbid_while_used(fabric: Fabric, subnet_id: str) -> None:
    """Raise ArmError while a scale set has its machines in the subnet."""
    for scale_set in fabric.state.scale_sets.values():
        if subnet_id.lower() in (s.lower() for s in subnets(scale_set.profile)):
            name = subnet_id.rpartition("/")[2]
            raise ArmError(
                400,
                "InUseSubnetCannotBeDeleted",
                f"Subnet {name} is in use by {scale_set.id} and cannot be deleted. In order to "
                "delete the subnet, delete all the resources within the subnet. See "
                "aka.ms/deletesubnet.",
            )


def _network_in_use(fabric: Fabric, network: Resource) -> None:
    for subnet in network.body["properties"].get("subnets", []):
        forbid_while_used(fabric, f"{network.id}/subnets/{subnet['name']}")


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


def _check_security_group(draft: Draft) -> None:
    seen: dict[tuple[str, object], str] = {}
    draft.properties.setdefault("securityRules", [])
    draft.properties["defaultSecurityRules"] = [_default_rule(*row) for row in DEFAULT_RULES]
    for rule in rows(draft.properties, "securityRules"):
        name, properties = str(rule["name"]), section(rule, "properties")
        _check_rule(draft, name, properties)
        place = (str(properties["direction"]).lower(), properties["priority"])
        if place in seen:
            raise draft.refuse(
                "SecurityRuleConflict",
                f"Security rule {name} conflicts with rule {seen[place]}. Rules cannot have the "
                "same Priority and Direction.",
            )
        seen[place] = name


CHOICES = {
    "access": ("Allow", "Deny"),
    "direction": ("Inbound", "Outbound"),
    "protocol": ("Tcp", "Udp", "Icmp", "Esp", "Ah", "*"),
}
ENDS = ("sourceAddress", "destinationAddress", "sourcePort", "destinationPort")


def _check_rule(draft: Draft, name: str, rule: Json) -> None:
    for member, choices in CHOICES.items():
        if str(rule.get(member)).lower() not in (c.lower() for c in choices):
            raise draft.refuse(
                "SecurityRuleParameterContainsUnsupportedValue",
                f"Security rule {name} has an unsupported value '{rule.get(member)}' for "
                f"{member}. Supported values are {', '.join(choices)}.",
            )
    priority = rule.get("priority")
    if not isinstance(priority, int) or not 100 <= priority <= 4096:
        raise draft.refuse(
            "SecurityRuleInvalidPriority",
            f"Security rule has invalid Priority. Value provided: {priority}. Allowed range "
            "100-4096.",
        )
    for end in ENDS:
        one = f"{end}Prefix" if end.endswith("Address") else f"{end}Range"
        many = one.replace("Prefix", "Prefixes").replace("Range", "Ranges")
        if not rule.get(one) and not rule.get(many):
            raise draft.refuse(
                "SecurityRuleParameterMissing",
                f"Required security rule parameters are missing for security rule {name}: it must "
                f"specify {one} or {many}.",
            )


def _group_in_use(fabric: Fabric, group: Resource) -> None:
    _unreferenced(fabric, group, "networkSecurityGroup", "InUseNetworkSecurityGroupCannotBeDeleted")


def _gateway_in_use(fabric: Fabric, gateway: Resource) -> None:
    _unreferenced(fabric, gateway, "natGateway", "InUseNatGatewayCannotBeDeleted")


def _unreferenced(fabric: Fabric, resource: Resource, link: str, code: str) -> None:
    for network in fabric.state.resources.values():
        if network.type != NETWORKS:
            continue
        for subnet in network.body["properties"].get("subnets", []):
            found = section(subnet["properties"], link).get("id")
            if str(found).lower() == resource.key:
                user = f"{network.id}/subnets/{subnet['name']}"
                raise ArmError(
                    400,
                    code,
                    f"{resource.type.rpartition('/')[2]} {resource.id} cannot be deleted because "
                    f"it is in use by the following resources: {user}. In order to delete it, "
                    "remove the association with the resource(s).",
                )


def _check_address(draft: Draft) -> None:
    sku = draft.body.setdefault("sku", {"name": "Standard"})
    sku.setdefault("tier", "Regional")
    method = draft.properties.setdefault("publicIPAllocationMethod", "Dynamic")
    draft.properties.setdefault("publicIPAddressVersion", "IPv4")
    draft.properties.setdefault("idleTimeoutInMinutes", 4)
    if sku.get("name") != "Standard" and sku.get("name") != "StandardV2":
        raise draft.refuse(
            "IPv4BasicSkuPublicIpCountLimitReached",
            "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription "
            "in this region.",
        )
    if method != "Static":
        raise draft.refuse(
            "StandardAndStandardV2SkuPublicIPAddressesMustBeStatic",
            f"Standard sku publicIp {draft.path.id} must have AllocationMethod set to Static.",
        )
    others = draft.fabric.state.resources.values()
    taken = {r.body["properties"].get("ipAddress") for r in others if r.type == ADDRESSES}
    # From the block that documentation uses: it leads nowhere.
    free = (f"203.0.113.{n}" for n in range(1, 255) if f"203.0.113.{n}" not in taken)
    old = draft.old.body["properties"] if draft.old else {}
    draft.properties["ipAddress"] = old.get("ipAddress") or next(free, "203.0.113.255")


def _check_gateway(draft: Draft) -> None:
    if draft.sku.get("name") not in ("Standard", "StandardV2"):
        raise draft.refuse("InvalidRequestFormat", "A NAT gateway needs the sku 'Standard'.")
    for address in rows(draft.properties, "publicIpAddresses"):
        draft.need(address.get("id"))
    draft.properties.setdefault("idleTimeoutInMinutes", 4)


def _address_in_use(fabric: Fabric, address: Resource) -> None:
    for gateway in fabric.state.resources.values():
        if gateway.type == "Microsoft.Network/natGateways":
            used = rows(gateway.body["properties"], "publicIpAddresses")
            if address.key in (str(row.get("id")).lower() for row in used):
                raise ArmError(
                    400,
                    "PublicIPAddressCannotBeDeleted",
                    f"Public IP address {address.id} can not be deleted since it is still "
                    f"allocated to resource {gateway.id}.",
                )


KINDS = (
    Kind(type="Microsoft.Network/loadBalancers", oldest=OLDEST, check=no_check),  # only kept
    Kind(
        type="Microsoft.Network/loadBalancers/inboundNatRules",
        oldest=OLDEST,
        check=no_check,
        inside="inboundNatRules",
    ),
    Kind(
        type=NETWORKS,
        oldest=OLDEST,
        check=_check_network,
        forbid_delete=_network_in_use,
    ),
    Kind(
        type="Microsoft.Network/virtualNetworks/subnets",
        oldest=OLDEST,
        check=_check_network,
        inside="subnets",
    ),
    Kind(
        type="Microsoft.Network/networkSecurityGroups",
        oldest=OLDEST,
        check=_check_security_group,
        forbid_delete=_group_in_use,
    ),
    Kind(
        type="Microsoft.Network/networkSecurityGroups/securityRules",
        oldest=OLDEST,
        check=_check_security_group,
        inside="securityRules",
    ),
    Kind(
        type=ADDRESSES,
        oldest=OLDEST,
        check=_check_address,
        forbid_delete=_address_in_use,
    ),
    Kind(
        type="Microsoft.Network/natGateways",
        oldest="2019-02-01",
        check=_check_gateway,
        forbid_delete=_gateway_in_use,
    ),
)
