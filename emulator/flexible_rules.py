"""What tells Flexible scale sets from Uniform ones."""

from typing import Any

from emulator.errors import invalid, missing

FOREIGN = ("overprovision", "upgradePolicy")  # what only Uniform ones have


def check(name: str, model: dict[str, Any], profile: dict[str, Any]) -> None:
    """Raise ArmError for what does not go with the orchestration mode."""
    properties = model["properties"]
    flexible = properties.get("orchestrationMode") == "Flexible"
    if flexible:
        _flexible(name, model, properties, profile)
    if (mix := properties.get("priorityMixPolicy")) is not None:
        _mix(mix, properties, profile, flexible=flexible)


def _flexible(
    name: str, model: dict[str, Any], properties: dict[str, Any], profile: dict[str, Any]
) -> None:
    for member in FOREIGN:
        if properties.get(member):
            raise invalid(f"Parameter '{member}' is not allowed.", target=member)
    if properties.get("platformFaultDomainCount") is None:
        raise missing("platformFaultDomainCount")
    network = profile.get("networkProfile") or {}
    if network.get("networkInterfaceConfigurations") and not network.get("networkApiVersion"):
        raise invalid(
            f"Network api version in network profile of virtual machine {name} must be specified "
            "if network interface configurations are specified.",
            "NetworkApiVersionMustBeSpecifiedWithNetworkInterfaceConfigurations",
        )
    if "SystemAssigned" in ((model.get("identity") or {}).get("type") or ""):
        raise invalid(
            "Virtual Machine Scale Sets with Flexible orchestration mode support only "
            "user-assigned identities.",
            "BadRequest",
            "identity",
        )


def _mix(
    mix: dict[str, Any], properties: dict[str, Any], profile: dict[str, Any], *, flexible: bool
) -> None:
    if not flexible:
        raise invalid(
            "PriorityMixPolicy is only supported for Virtual Machine Scale Sets with Flexible "
            "orchestration mode.",
            "BadRequest",
        )
    if properties.get("singlePlacementGroup"):
        raise invalid(
            "PriorityMixPolicy is not supported for Virtual Machine Scale Sets with a single "
            "placement group.",
            "BadRequest",
        )
    if profile.get("priority") != "Spot":
        message = "PriorityMixPolicy requires the priority of the VM profile to be Spot."
        raise invalid(message, "BadRequest")
    for member, most in (
        ("baseRegularPriorityCount", 1000),
        ("regularPriorityPercentageAboveBase", 100),
    ):
        if not 0 <= (mix.get(member) or 0) <= most:
            raise invalid(
                f"The value '{mix[member]}' of parameter '{member}' is not allowed. Allowed "
                f"values are between 0 and {most}.",
                target=member,
            )
