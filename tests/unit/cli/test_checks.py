import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import ports
from rekindle.cli import check_azure, check_machine
from rekindle.cli.check import Check, Verdict


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def arm(answers: dict[str, Any]) -> check_azure.Azure:
    """ARM that knows these paths."""

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        body = answers.get(name, {"error": {"message": f"there is no {name}"}})
        return httpx.Response(200 if name in answers else 404, json=body)

    http = httpx.Client(
        transport=httpx.MockTransport(answer), base_url="https://arm/subscriptions/s"
    )
    return check_azure.Azure(http, "s", "rekindle")


def usage(limit: int, used: int) -> dict[str, Any]:
    return {
        "value": [{"name": {"value": "lowPriorityCores"}, "limit": limit, "currentValue": used}]
    }


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    first = ports.free(4)
    with socket.create_server(("127.0.0.1", first + 1)):
        found = by_name(check_machine.checks(tmp_path, first, stack_runs=False))["ports"]

    assert found.verdict is Verdict.MISSING
    assert str(first + 1) in found.found
    assert f"--port {first + 1000}" in found.remedy


def test_ports_of_a_stack_that_runs_are_no_fault(tmp_path: Path) -> None:
    found = by_name(check_machine.checks(tmp_path, 8080, stack_runs=True))

    assert found["ports"].verdict is Verdict.SKIPPED
    assert found["python"].verdict is Verdict.OK


def test_without_a_subscription_azure_is_skipped_and_says_why() -> None:
    (only,) = check_azure.checks({})

    assert only.verdict is Verdict.SKIPPED
    assert "REKINDLE_AZURE_SUBSCRIPTION_ID" in only.found


@pytest.mark.parametrize(
    ("limit", "used", "verdict"),
    [(192, 0, Verdict.OK), (96, 0, Verdict.OK), (96, 1, Verdict.MISSING), (0, 0, Verdict.MISSING)],
)
def test_spot_quota_must_hold_one_machine(limit: int, used: int, verdict: Verdict) -> None:
    offering = "Standard_ND96amsr_A100_v4@westus3"
    azure = arm({"usages": usage(limit, used)})

    (found,) = check_azure._quotas(azure, f"{offering}, ")

    assert found.verdict is verdict
    assert "96 for each machine" in found.found


def test_a_role_is_missing_as_long_as_one_of_its_actions_is() -> None:
    reader = {"actions": ["*/read"], "notActions": []}
    network = {"actions": ["Microsoft.Network/*"], "notActions": []}
    azure = arm({"rekindle": {}, "permissions": {"value": [reader, network]}})

    found = by_name(check_azure._group(azure))

    assert found["role Network Contributor"].verdict is Verdict.OK
    assert found["role Virtual Machine Contributor"].verdict is Verdict.MISSING
    assert "virtualMachineScaleSets/write" in found["role Virtual Machine Contributor"].found
    assert "az role assignment create" in found["role Virtual Machine Contributor"].remedy


def test_what_a_role_takes_away_is_not_granted_by_its_own_star() -> None:
    most = {"actions": ["*"], "notActions": ["Microsoft.Compute/virtualMachineScaleSets/delete"]}

    found = by_name(check_azure._roles([most]))

    assert found["role Virtual Machine Contributor"].verdict is Verdict.MISSING


IDENTITY = "/subscriptions/s/resourceGroups/rekindle/providers/Microsoft.ManagedIdentity/x/nodes"


@pytest.mark.parametrize(
    ("action", "verdict"),
    [
        ("*/read", Verdict.MISSING),
        ("Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action", Verdict.MISSING),
        ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", Verdict.OK),
    ],
)
def test_whoever_makes_machines_must_be_let_give_them_the_nodes_identity(
    action: str, verdict: Verdict
) -> None:
    azure = arm({"permissions": {"value": [{"actions": [action], "notActions": []}]}})

    found = by_name(check_azure._identity(azure, IDENTITY))["role Managed Identity Operator"]

    assert found.verdict is verdict
    assert (found.remedy == "") is (verdict is Verdict.OK)


def test_it_is_asked_of_the_identity_where_that_role_is_granted() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={"value": []})

    http = httpx.Client(
        transport=httpx.MockTransport(answer), base_url="https://arm/subscriptions/s"
    )

    list(check_azure._identity(check_azure.Azure(http, "s", "rekindle"), IDENTITY))

    assert asked == [f"{IDENTITY}/providers/Microsoft.Authorization/permissions"]


def test_nodes_without_an_identity_need_no_role_for_it() -> None:
    (found,) = check_azure._identity(arm({}), "")

    assert found.verdict is Verdict.SKIPPED


def test_a_resource_group_that_is_not_there_comes_with_the_command_that_makes_it() -> None:
    (found,) = check_azure._group(arm({}))

    assert found.verdict is Verdict.MISSING
    assert "az group create -n rekindle" in found.remedy


def test_roles_that_cannot_be_read_are_a_doubt_and_no_fault() -> None:
    found = by_name(check_azure._group(arm({"rekindle": {}})))

    assert found["roles"].verdict is Verdict.DOUBT


def test_an_image_without_a_registry_can_be_pulled_by_no_node() -> None:
    found = check_azure._image("rekindle-trainer:latest")

    assert found.verdict is Verdict.MISSING
    assert "names no registry" in found.found
