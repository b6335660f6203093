"""Refusals in Azure's codes and words."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

MISSING = "Required parameter '{0}' is missing (null)."


class ArmError(Exception):
    """An answer of status 400 or more; ``body`` is what ARM sends."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        target: str = "",
        additional_info: Sequence[dict[str, Any]] = (),
        details: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.additional_info = additional_info  # `additionalInfo`
        self.details = details  # the errors that led to it

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON travels."""
        optional = {
            "target": self.target,
            "details": list(self.details),
            "additionalInfo": list(self.additional_info),
        }
        members = {name: value for name, value in optional.items() if value}
        return {"error": {"code": self.code, "message": self.message, **members}}


def invalid(message: str, code: str = "InvalidParameter", target: str = "") -> ArmError:
    """Return 400: the request can never succeed as it stands."""
    return ArmError(400, code, message, target)


def refuse_unknown(names: Iterable[str], allowed: Sequence[str], kind: str) -> None:
    """Let an admin call have no other members and parameters: a slip would mean everything."""
    if unknown := sorted(set(names) - {*allowed, "api-version"}):  # clients of ARM always send that
        listing = ", ".join(allowed)
        raise invalid(f"This call has no {kind} {unknown[0]!r}; it has {listing}.")


def missing(name: str) -> ArmError:
    """Return 400: a required parameter is missing."""
    return invalid(MISSING.format(name), target=name)


def not_allowed(message: str) -> ArmError:
    """Return 409 OperationNotAllowed: the state of the resource forbids it."""
    return ArmError(409, "OperationNotAllowed", message)


def change_not_allowed(name: str) -> ArmError:
    """Return 409: the member is fixed when the resource is created."""
    message = f"Changing property '{name}' is not allowed."
    return ArmError(409, "PropertyChangeNotAllowed", message, name)


def wrong_location(name: str, location: str, group: str, new_location: str) -> ArmError:
    """Return 409: the resource exists in another region."""
    return ArmError(
        409,
        "InvalidResourceLocation",
        f"The resource '{name}' already exists in location '{location}' in resource group "
        f"'{group}'. A resource with the same name cannot be created in location '{new_location}'. "
        "Please select a new resource name.",
    )


def group_not_found(name: str) -> ArmError:
    """Return 404: there is no such resource group."""
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")


def resource_not_found(path: str, group: str) -> ArmError:
    """Return 404: the group has no such resource; ``path`` is its type and name."""
    return ArmError(
        404,
        "ResourceNotFound",
        f"The Resource '{path}' under resource group '{group}' was not found. For more details "
        "please go to https://aka.ms/ARMResourceNotFoundFix",
    )


def marked_for_deletion(operation: str, name: str) -> ArmError:
    """Return 409: the scale set is being deleted."""
    return not_allowed(
        f"Operation '{operation}' is not allowed on Virtual Machine Scale Set '{name}' since it is "
        "marked for deletion. For more information on your operations, please refer to "
        "https://aka.ms/activitylog."
    )


def sku_not_available(name: str, location: str, subscription: str) -> ArmError:
    """Return 409: the size is not available in the region."""
    return ArmError(
        409,
        "SkuNotAvailable",
        f"The requested tier for resource '{name}' is currently not available in location "
        f"'{location}' for subscription '{subscription}'. Try another tier or deploy to a "
        "different location.",
    )


def disallowed_by_policy(name: str, subscription: str, policy: str) -> ArmError:
    """Return 403: an Azure Policy of the subscription denies the resource.

    Form: azure-docs, automation/enforce-job-execution-hybrid-worker.
    """
    scope = f"/subscriptions/{subscription}"
    ids = {
        kind: f"{scope}/providers/Microsoft.Authorization/{kind}s/{_slug(policy)}"
        for kind in ("policyAssignment", "policyDefinition")
    }
    identifiers = [{kind: {"name": policy, "id": id_} for kind, id_ in ids.items()}]
    info = {
        "policyDefinitionDisplayName": policy,
        "policyDefinitionId": ids["policyDefinition"],
        "policyDefinitionName": _slug(policy),
        "policyDefinitionEffect": "Deny",
        "policyAssignmentId": ids["policyAssignment"],
        "policyAssignmentName": _slug(policy),
        "policyAssignmentDisplayName": policy,
        "policyAssignmentScope": scope,
        "policyAssignmentParameters": {},
    }
    message = (
        f"Resource '{name}' was disallowed by policy. Policy identifiers: "
        f"'{json.dumps(identifiers)}'."
    )
    additional_info = [{"type": "PolicyViolation", "info": info}]
    return ArmError(403, "RequestDisallowedByPolicy", message, name, additional_info)


def _slug(name: str) -> str:
    return "-".join(name.lower().split())


def quota_exceeded(
    quota: str,
    location: str,
    *,
    limit: int,
    usage: int,
    cores: int,
    code: str = "OperationNotAllowed",
) -> ArmError:
    """Return 409: the cores would exceed a quota of the region."""
    return ArmError(
        409,
        code,
        f"Operation could not be completed as it results in exceeding approved {quota} quota. "
        f"Additional details - Deployment Model: Resource Manager, Location: {location}, "
        f"Current Limit: {limit}, Current Usage: {usage}, Additional Required: {cores}, "
        f"(Minimum) New Limit Required: {usage + cores}. Submit a request for Quota increase at "
        "https://aka.ms/ProdportalCRP/ by specifying parameters listed in the 'Details' section "
        "for deployment to succeed.",
    )


_NO_ROOM = (
    "Allocation failed. We do not have sufficient capacity for the requested VM size in this {}. "
    "Read more about improving likelihood of allocation success at "
    "http://aka.ms/allocation-guidance"
)
_TOO_NARROW = (
    "Allocation failed. VM(s) with the following constraints cannot be allocated, because the "
    "condition is too restrictive. Please remove some constraints and try again. Constraints "
    "applied are:\n  - Differencing (Ephemeral) Disks\n  - Low Priority VMs\n  - Networking "
    "Constraints (such as Accelerated Networking or IPv6)\n  - Preemptible VMs (VM might be "
    "preempted by another VM with a higher priority)\n  - Subscription Pinning\n  - VM Size\n"
)
ALLOCATION = {
    "AllocationFailed": _NO_ROOM.format("region"),
    "ZonalAllocationFailed": _NO_ROOM.format("zone"),
    "OverconstrainedAllocationRequest": _TOO_NARROW,
    "OverconstrainedZonalAllocationRequest": _TOO_NARROW,
}

# As azure-docs has them, virtual-machines/troubleshooting/error-messages.
OPERATION_MESSAGES = ALLOCATION | {
    "NetworkingInternalOperationError": "Unknown network allocation error.",
    "OSProvisioningTimedOut": "OS Provisioning for VM did not finish in the allotted time. The VM "
    "may still finish provisioning successfully. Please check provisioning state later.",
    "OSProvisioningInternalError": "OS Provisioning failed for VM due to an internal error.",
    "OSProvisioningClientError": "OS provisioning for VM failed. Make sure the image has been "
    "properly prepared (generalized).",
    "VMExtensionProvisioningError": "VM has reported a failure when processing extension.",
    "VMExtensionProvisioningTimeout": "Provisioning of VM extension has timed out. Extension "
    "installation may be taking too long, or extension status could not be obtained.",
}
GUEST = ("OSProvisioning", "VMExtension")  # such a machine has been allocated, and runs

INTERNAL = "An internal execution error occurred. Please retry later."


def refusal(code: str, message: str = "") -> dict[str, str]:
    """Return the error of an operation that was accepted and failed."""
    return {"code": code, "message": message or OPERATION_MESSAGES.get(code, INTERNAL)}


PREEMPTED = {
    "code": "OperationPreempted",
    "message": "The operation has been preempted by a more recent operation.",
}
