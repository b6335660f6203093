"""Which requests are measured by which limit; numbers as Microsoft's tables have them.

A list of instances is in no table: it is measured as the instance view of the scale set, whose
cost it has.
"""

import re
from dataclasses import dataclass

ARM_LIMITS = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}  # all others: writes


@dataclass(frozen=True)
class BucketLimit:
    """A bucket's size, and how much comes back how often."""

    refill: int
    capacity: int
    every: float = 60.0  # seconds

    @classmethod
    def of_arm(cls, kind: str) -> "BucketLimit":
        """Return a limit of Azure Resource Manager itself."""
        return cls(25, 250, 1.0) if kind == "reads" else cls(10, 200, 1.0)


@dataclass(frozen=True)
class ThrottlingPolicy:
    """The limits that one group of operations shares."""

    name: str
    subscription: BucketLimit
    resource: BucketLimit | None = None
    measured: str = ""  # the part of the path that names the resource


SETS = "/providers/microsoft.compute/virtualmachinescalesets"
SET = SETS + "/[^/]+"
SET_VM = SET + "/virtualmachines/[^/]+"
VMS = "/providers/microsoft.compute/virtualmachines"
VM = VMS + "/[^/]+"
OPERATION = "/providers/microsoft.compute/locations/[^/]+/operations/[^/]+"
# Methods (NEW: a PUT of what is not there yet), end of the path, name, how much comes back in a
# minute for the subscription and for the resource (a bucket holds three times that), the resource.
RULES = [
    ("GET", OPERATION, "GetOperation", 5000, 15, OPERATION),
    ("GET", SETS, "HighCostGetVMScaleSet", 360, 0, ""),
    ("GET", SET + "/(instanceview|virtualmachines)", "HighCostGetVMScaleSet", 360, 10, SET),
    ("GET", SET_VM + "(/.*)?", "GetVMScaleSetVM", 2000, 12, SET_VM),
    ("GET", SET + "(/.*)?", "GetVMScaleSet", 800, 12, SET),
    ("DELETE", SET, "DeleteVMScaleSet", 175, 4, SET),
    ("POST", SET + "/(delete|deallocate)", "DeleteVMScaleSet", 175, 4, SET),
    ("POST", SET + "/poweroff", "DeleteVMScaleSet", 175, 0, ""),
    ("DELETE", SET_VM + "(/.*)?", "DeleteVMScaleSetVM", 500, 4, SET_VM),
    ("POST", SET_VM + "/(poweroff|deallocate)", "DeleteVMScaleSetVM", 500, 4, SET_VM),
    ("NEW PUT PATCH POST", SET_VM + "(/.*)?", "UpdateVMScaleSetVM", 500, 4, SET_VM),
    ("NEW", SET + "(/.*)?", "CreateVMScaleSet", 125, 4, SET),
    ("PUT PATCH", SET + "(/.*)?", "UpdateVMScaleSet", 500, 4, SET),
    ("POST", SET + "/scaleout", "UpdateVMScaleSet", 500, 4, SET),
    ("POST", SET + "/.*", "UpdateVMScaleSet", 500, 0, ""),
    ("GET", VMS, "HighCostGet", 300, 0, ""),
    ("GET", VM + "(/.*)?", "LowCostGet", 8000, 12, VM),
    ("DELETE", VM, "DeleteVM", 500, 4, VM),
    ("POST", VM + "/(simulateeviction|deallocate)", "DeleteVM", 500, 4, VM),
    ("NEW PUT", VM, "PutVM", 500, 4, VM),
    ("NEW PUT PATCH POST DELETE", VM + "(/.*)?", "UpdateVM", 500, 4, VM),
]


def policy_of(method: str, path: str, *, exists: bool) -> ThrottlingPolicy | None:
    """Return the policy that limits a request; ``path`` is in lower case."""
    verb = "NEW" if method == "PUT" and not exists else method
    for methods, pattern, name, subscription, resource, measured in RULES:
        if verb in methods.split() and re.search(pattern + "/?$", path):
            resource_limit = BucketLimit(resource, 3 * resource) if resource else None
            subscription_limit = BucketLimit(subscription, 3 * subscription)
            return ThrottlingPolicy(name, subscription_limit, resource_limit, measured)
    return None
