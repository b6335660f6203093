"""Refusals in Azure's codes and words."""

from typing import Any


class ArmError(Exception):
    """An answer of status 400 or more; ``body`` is what ARM sends."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON travels."""
        return {"error": {"code": self.code, "message": self.message}}


def invalid(message: str, code: str = "InvalidParameter") -> ArmError:
    """The request can never succeed as it stands."""
    return ArmError(400, code, message)


def group_not_found(name: str) -> ArmError:
    """There is no such resource group."""
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")


def scale_set_not_found(group: str, name: str) -> ArmError:
    """There is no such scale set in the group."""
    return ArmError(
        404,
        "ResourceNotFound",
        f"The Resource 'Microsoft.Compute/virtualMachineScaleSets/{name}' under resource group "
        f"'{group}' was not found. For more details please go to "
        "https://aka.ms/ARMResourceNotFoundFix",
    )


def instance_not_found(instance_id: str) -> ArmError:
    """The scale set has no instance with this id (any more)."""
    message = f"The entity was not found: no virtual machine with instance id '{instance_id}'."
    return ArmError(404, "NotFound", message)


def marked_for_deletion(operation: str, name: str) -> ArmError:
    """The scale set is being deleted and takes no other orders."""
    return ArmError(
        409,
        "OperationNotAllowed",
        f"Operation '{operation}' is not allowed on Virtual Machine Scale Set '{name}' since it is "
        "marked for deletion. For more information on your operations, please refer to "
        "https://aka.ms/activitylog.",
    )


def precondition_failed() -> ArmError:
    """The resource is not (or not any more) what If-Match or If-None-Match supposed."""
    message = "The condition specified using HTTP conditional header(s) is not met."
    return ArmError(412, "PreconditionFailed", message)


def sku_not_available(name: str, location: str, subscription: str) -> ArmError:
    """The size is not sold there."""
    return ArmError(
        409,
        "SkuNotAvailable",
        f"The requested tier for resource '{name}' is currently not available in location "
        f"'{location}' for subscription '{subscription}'. Try another tier or deploy to a "
        "different location.",
    )


def quota_exceeded(
    quota: str,
    location: str,
    *,
    limit: int,
    usage: int,
    more: int,
    code: str = "OperationNotAllowed",
) -> ArmError:
    """The subscription may not hold that many cores in the region."""
    return ArmError(
        409,
        code,
        f"Operation could not be completed as it results in exceeding approved {quota} quota. "
        f"Additional details - Deployment Model: Resource Manager, Location: {location}, "
        f"Current Limit: {limit}, Current Usage: {usage}, Additional Required: {more}, "
        f"(Minimum) New Limit Required: {usage + more}. Submit a request for Quota increase at "
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
ALLOCATION_FAILED = {"code": "AllocationFailed", "message": ALLOCATION["AllocationFailed"]}

INTERNAL = "An internal execution error occurred. Please retry later."


def refusal(code: str, message: str = "") -> dict[str, str]:
    """Why an operation that was accepted failed."""
    return {"code": code, "message": message or ALLOCATION.get(code, INTERNAL)}


PREEMPTED = {
    "code": "OperationPreempted",
    "message": "The operation has been preempted by a more recent operation.",
}
