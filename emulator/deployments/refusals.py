"""Refusals of templates, in Azure's code and words."""

from emulator.core.errors import ArmError, invalid


def invalid_template(message: str) -> ArmError:
    """Return 400: the template or its parameters are invalid."""
    return invalid(f"Deployment template validation failed: '{message}'.", "InvalidTemplate")


def invalid_resource(name: str, message: str) -> ArmError:
    """Return 400: one resource of the template makes no sense."""
    return invalid_template(f"The template resource '{name}' is not valid: {message}")
