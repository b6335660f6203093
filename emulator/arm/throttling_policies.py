"""Which requests are measured by which limit; numbers as Microsoft's tables have them."""

import re
from dataclasses import dataclass

ARM_LIMITS = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}  # all others: writes
MINUTE = 60.0


@dataclass(frozen=True)
class BucketLimit:
    """A bucket's size, and how much comes back how often."""

    refill: int
    capacity: int
    every: float = MINUTE  # seconds

    @classmethod
    def of_arm(cls, kind: str) -> "BucketLimit":
        """Of Azure Resource Manager itself."""
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

SOME = BucketLimit(4, 12)
READ = BucketLimit(12, 36)
CREATE_SET = ThrottlingPolicy("CreateVMScaleSet", BucketLimit(125, 375), SOME, SET)
UPDATE_SET = ThrottlingPolicy("UpdateVMScaleSet", BucketLimit(500, 1500), SOME, SET)
ACT_ON_SET = ThrottlingPolicy("UpdateVMScaleSet", BucketLimit(500, 1500))
DELETE_SET = ThrottlingPolicy("DeleteVMScaleSet", BucketLimit(175, 525), SOME, SET)
STOP_SET = ThrottlingPolicy("DeleteVMScaleSet", BucketLimit(175, 525))
GET_SET = ThrottlingPolicy("GetVMScaleSet", BucketLimit(800, 2400), READ, SET)
LOOK_INTO_SET = ThrottlingPolicy(
    "HighCostGetVMScaleSet", BucketLimit(360, 1080), BucketLimit(10, 30), SET
)
LIST_SETS = ThrottlingPolicy("HighCostGetVMScaleSet", BucketLimit(360, 1080))
UPDATE_SET_VM = ThrottlingPolicy("UpdateVMScaleSetVM", BucketLimit(500, 1500), SOME, SET_VM)
DELETE_SET_VM = ThrottlingPolicy("DeleteVMScaleSetVM", BucketLimit(500, 1500), SOME, SET_VM)
GET_SET_VM = ThrottlingPolicy("GetVMScaleSetVM", BucketLimit(2000, 6000), READ, SET_VM)
PUT_VM = ThrottlingPolicy("PutVM", BucketLimit(500, 1500), SOME, VM)
UPDATE_VM = ThrottlingPolicy("UpdateVM", BucketLimit(500, 1500), SOME, VM)
DELETE_VM = ThrottlingPolicy("DeleteVM", BucketLimit(500, 1500), SOME, VM)
GET_VM = ThrottlingPolicy("LowCostGet", BucketLimit(8000, 24000), READ, VM)
LIST_VMS = ThrottlingPolicy("HighCostGet", BucketLimit(300, 900))
GET_OPERATION = ThrottlingPolicy(
    "GetOperation", BucketLimit(5000, 15000), BucketLimit(15, 45), OPERATION
)

# Method, end of the path, policy; the first that fits. A list of instances is in no table of
# Microsoft's: it is measured as the instance view of the scale set, whose cost it has.
RULES = [
    (methods, re.compile(pattern + "/?$"), policy)
    for methods, pattern, policy in (
        ("GET", OPERATION, GET_OPERATION),
        ("GET", SETS, LIST_SETS),
        ("GET", SET + "/(instanceview|virtualmachines)", LOOK_INTO_SET),
        ("GET", SET_VM + "(/.*)?", GET_SET_VM),
        ("GET", SET + "(/.*)?", GET_SET),
        ("DELETE", SET, DELETE_SET),
        ("POST", SET + "/(delete|deallocate)", DELETE_SET),
        ("POST", SET + "/poweroff", STOP_SET),
        ("DELETE", SET_VM + "(/.*)?", DELETE_SET_VM),
        ("POST", SET_VM + "/(poweroff|deallocate)", DELETE_SET_VM),
        ("PUT PATCH POST", SET_VM + "(/.*)?", UPDATE_SET_VM),
        ("PUT PATCH", SET + "(/.*)?", UPDATE_SET),
        ("POST", SET + "/scaleout", UPDATE_SET),
        ("POST", SET + "/.*", ACT_ON_SET),
        ("GET", VMS, LIST_VMS),
        ("GET", VM + "(/.*)?", GET_VM),
        ("DELETE", VM, DELETE_VM),
        ("POST", VM + "/(simulateeviction|deallocate)", DELETE_VM),
        ("PUT", VM, PUT_VM),
        ("PUT PATCH POST DELETE", VM + "(/.*)?", UPDATE_VM),
    )
]


def policy_of(method: str, path: str, *, exists: bool) -> ThrottlingPolicy | None:
    """Return the policy that limits a request; ``path`` is in lower case."""
    for methods, pattern, policy in RULES:
        if method in methods.split() and pattern.search(path):
            return CREATE_SET if policy is UPDATE_SET and method == "PUT" and not exists else policy
    return None
