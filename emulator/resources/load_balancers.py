"""Load balancers, which carry no traffic: what Azure fills in of them.

The values are those of the recorded answers in azure-cli (test_vmss_vms)
and azure-service-operator (Test_Compute_VMSS_20220301_CRUD).
"""

from emulator.resources.kinds import Draft, Json, rows, section

_FLOW = {
    "idleTimeoutInMinutes": 4,
    "enableFloatingIP": False,
    "enableDestinationServiceEndpoint": False,
    "enableTcpReset": False,
    "allowBackendPortConflict": False,
}
FILLED: dict[str, Json] = {  # by part
    "frontendIPConfigurations": {"privateIPAllocationMethod": "Dynamic"},
    "backendAddressPools": {},
    "loadBalancingRules": _FLOW | {"loadDistribution": "Default", "disableOutboundSnat": False},
    "probes": {"intervalInSeconds": 15, "numberOfProbes": 2},
    "inboundNatRules": _FLOW,
    "inboundNatPools": _FLOW,
    "outboundRules": {},
}
LINKS = {
    "frontendIPConfiguration": "frontendIPConfigurations",
    "backendAddressPool": "backendAddressPools",
    "probe": "probes",
}
REFERRERS = ("inboundNatPools", "inboundNatRules", "loadBalancingRules")
PORTS = ("frontendPort", "backendPort", "frontendPortRangeStart", "frontendPortRangeEnd", "port")


def fill_in(draft: Draft) -> None:
    """Add what Azure adds: every part, its defaults, and who refers to it."""
    draft.body.setdefault("sku", {"name": "Standard"})
    draft.sku.setdefault("tier", "Regional")
    for part, defaults in FILLED.items():
        if draft.properties.get(part) is None:
            draft.properties[part] = []
        for row in rows(draft.properties, part):
            members = section(row, "properties")
            row["properties"] = {**defaults, **{k: _number(k, v) for k, v in members.items()}}
            for referrer in REFERRERS:
                row["properties"].pop(referrer, None)
    for part in REFERRERS:
        for row in rows(draft.properties, part):
            _link(draft, part, row)


def _link(draft: Draft, part: str, row: Json) -> None:
    """Name a rule where it is used."""
    for member, target in LINKS.items():
        target_id = str(section(row["properties"], member).get("id")).lower()
        for used in rows(draft.properties, target):
            if target_id == f"{draft.path.id}/{target}/{used.get('name')}".lower():
                link = {"id": f"{draft.path.id}/{part}/{row.get('name')}"}
                used["properties"].setdefault(part, []).append(link)


def _number(name: str, value: object) -> object:
    """Return a port as a number, which may have come as text; other members as they are."""
    return int(value) if name in PORTS and isinstance(value, str) and value.isdigit() else value
