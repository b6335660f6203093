"""What tells Flexible scale sets from Uniform ones."""

from typing import Any

from emulator.core.errors import invalid, missing

FOREIGN = ("overprovision",)  # what only Uniform ones have


def check(name: str, model: dict[str, Any], profile: dict[str, Any]) -> None:
    """Raise ArmError for what does not go with the orchestration mode."""
    properties = model["properties"]
    if properties.get("orchestrationMode") == "Flexible":
        _flexible(name, model, properties, profile)
    if properties.get("priorityMixPolicy") is not None:
        text = "This emulator does not offer priorityMixPolicy: make two scale sets."
        raise invalid(text, "BadRequest")


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
