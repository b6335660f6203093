"""Which requests are measured by which limit; numbers as Microsoft's tables have them."""

import re
from dataclasses import dataclass

ARM_LIMITS = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}  # all others: writes
MINUTE = 60.0


@dataclass(frozen=True)
class Limit:
    """A bucket's size, and how much comes back how often."""

    refill: int
    capacity: int
    every: float = MINUTE  # seconds

    @classmethod
    def of_arm(cls, kind: str) -> "Limit":
        """Of Azure Resource Manager itself."""
        return cls(25, 250, 1.0) if kind == "reads" else cls(10, 200, 1.0)


@dataclass(frozen=True)
class Policy:
    """The limits that one group of operations shares."""

    name: str
    subscription: Limit
    resource: Limit | None = None
    measured: str = ""  # the part of the path that names the resource


SETS = "/providers/microsoft.compute/virtualmachinescalesets"
SET = SETS + "/[^/]+"
SET_VM = SET + "/virtualmachines/[^/]+"
VMS = "/providers/microsoft.compute/virtualmachines"
VM = VMS + "/[^/]+"
OPERATION = "/providers/microsoft.compute/locations/[^/]+/operations/[^/]+"

SOME = Limit(4, 12)
READ = Limit(12, 36)
CREATE_SET = Policy("CreateVMScaleSet", Limit(125, 375), SOME, SET)
UPDATE_SET = Policy("UpdateVMScaleSet", Limit(500, 1500), SOME, SET)
ACT_ON_SET = Policy("UpdateVMScaleSet", Limit(500, 1500))
DELETE_SET = Policy("DeleteVMScaleSet", Limit(175, 525), SOME, SET)
STOP_SET = Policy("DeleteVMScaleSet", Limit(175, 525))
GET_SET = Policy("GetVMScaleSet", Limit(800, 2400), READ, SET)
LOOK_INTO_SET = Policy("HighCostGetVMScaleSet", Limit(360, 1080), Limit(10, 30), SET)
LIST_SETS = Policy("HighCostGetVMScaleSet", Limit(360, 1080))
UPDATE_SET_VM = Policy("UpdateVMScaleSetVM", Limit(500, 1500), SOME, SET_VM)
DELETE_SET_VM = Policy("DeleteVMScaleSetVM", Limit(500, 1500), SOME, SET_VM)
GET_SET_VM = Policy("GetVMScaleSetVM", Limit(2000, 6000), READ, SET_VM)
PUT_VM = Policy("PutVM", Limit(500, 1500), SOME, VM)
UPDATE_VM = Policy("UpdateVM", Limit(500, 1500), SOME, VM)
DELETE_VM = Policy("DeleteVM", Limit(500, 1500), SOME, VM)
GET_VM = Policy("LowCostGet", Limit(8000, 24000), READ, VM)
LIST_VMS = Policy("HighCostGet", Limit(300, 900))
GET_OPERATION = Policy("GetOperation", Limit(5000, 15000), Limit(15, 45), OPERATION)

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


def policy_of(method: str, path: str, *, exists: bool) -> Policy | None:
    """Return the policy that limits a request; ``path`` is in lower case."""
    for methods, pattern, policy in RULES:
        if method in methods.split() and pattern.search(path):
            return CREATE_SET if policy is UPDATE_SET and method == "PUT" and not exists else policy
    return None
