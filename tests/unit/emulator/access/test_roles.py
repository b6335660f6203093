"""Which action a request is, and which role allows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.access.actions import Need, needed
from emulator.access.assignments import within
from emulator.access.roles import built_in, matches

HERE = "/subscriptions/s"
GROUP = f"{HERE}/resourceGroups/g"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
SET = f"{COMPUTE}/virtualMachineScaleSets/n"
PLACE = f"{HERE}/providers/Microsoft.Compute/locations/eastus"
SETS = "Microsoft.Compute/virtualMachineScaleSets"
RESOURCES = "Microsoft.Resources/subscriptions"


@pytest.mark.parametrize(
    ("method", "path", "action", "scope"),
    [
        ("GET", HERE, f"{RESOURCES}/read", HERE),
        ("HEAD", GROUP, f"{RESOURCES}/resourcegroups/read", GROUP),
        ("PUT", GROUP, f"{RESOURCES}/resourcegroups/write", GROUP),
        ("DELETE", GROUP, f"{RESOURCES}/resourcegroups/delete", GROUP),
        ("GET", f"{GROUP}/resources", f"{RESOURCES}/resourcegroups/resources/read", GROUP),
        ("PUT", SET, f"{SETS}/write", SET),
        ("PATCH", SET, f"{SETS}/write", SET),
        ("GET", f"{COMPUTE}/virtualMachineScaleSets", f"{SETS}/read", COMPUTE),
        ("POST", f"{SET}/delete", f"{SETS}/delete/action", SET),
        ("GET", f"{SET}/instanceView", f"{SETS}/instanceView/read", SET),
        (
            "POST",
            f"{SET}/virtualMachines/0/simulateEviction",
            f"{SETS}/virtualMachines/simulateEviction/action",
            f"{SET}/virtualMachines/0",
        ),
        (
            "POST",
            f"{PLACE}/placementScores/spot/generate",
            "Microsoft.Compute/locations/placementScores/generate/action",
            f"{PLACE}/placementScores/spot",
        ),
        (
            "PUT",
            f"{SET}/providers/Microsoft.Authorization/roleAssignments/a",
            "Microsoft.Authorization/roleAssignments/write",
            f"{SET}/providers/Microsoft.Authorization/roleAssignments/a",
        ),
        (
            "POST",
            f"{GROUP}/providers/Microsoft.CostManagement/query",
            "Microsoft.CostManagement/query/read",
            GROUP,
        ),
    ],
)
def test_every_request_is_an_action_over_a_scope(
    method: str, path: str, action: str, scope: str
) -> None:
    assert needed(method, path) == Need(action, scope)


@pytest.mark.parametrize(
    "path",
    [
        "/subscriptions",
        "/tenants",
        f"{HERE}/resourceGroups",
        "/providers/Microsoft.ResourceGraph/resources",
        f"{PLACE}/operations/1",
        f"{HERE}/operationresults/1",
        f"{GROUP}/providers/Microsoft.Authorization/permissions",
    ],
)
def test_what_everybody_may_ask_needs_no_role(path: str) -> None:
    assert needed("GET", path) is None


SEGMENTS = [
    "subscriptions",
    "providers",
    "resourceGroups",
    "Microsoft.X",
    "x",
    "locations",
    "",
    "*",
]


@given(st.sampled_from(["GET", "POST", "PUT", "BREW"]), st.lists(st.sampled_from(SEGMENTS)))
def test_no_path_is_too_odd_to_be_an_action(method: str, segments: list[str]) -> None:
    need = needed(method, "/" + "/".join(segments))

    assert need is None or "/" in need.action


def test_a_contributor_may_do_all_but_give_access_away() -> None:
    contributor = built_in()["b24988ac-6180-42a0-ab88-20f7382dd24c"]

    assert contributor.allows(f"{SETS}/write")
    assert contributor.allows("Microsoft.Authorization/roleAssignments/read")
    assert not contributor.allows("microsoft.authorization/ROLEASSIGNMENTS/write")


def test_an_operator_of_identities_may_assign_them() -> None:
    operator = built_in()["f1a07417-d97a-45cb-824c-7a7467783830"]

    assert operator.allows("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action")
    assert operator.allows("Microsoft.ManagedIdentity/userAssignedIdentities/read")
    assert not operator.allows("Microsoft.ManagedIdentity/userAssignedIdentities/write")


def test_a_star_covers_what_it_stands_for_and_no_more() -> None:
    assert matches(["Microsoft.Compute/*/read"], "Microsoft.Compute/disks/read")
    assert matches(["*/read"], "Microsoft.Compute/disks/read")
    assert not matches(["Microsoft.Compute/disks/read"], "Microsoft.Compute/disks/reader")
    assert not matches(["Microsoft.Compute/*"], "MicrosoftXCompute/disks/read")


def test_a_scope_holds_what_lies_in_it_but_not_its_namesakes() -> None:
    assert within(SET.upper(), GROUP)
    assert within(GROUP, "/")
    assert not within(f"{GROUP}-2", GROUP)
    assert not within(HERE, GROUP)
