import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import ports
from rekindle.cli.command import Cli
from rekindle.cli.connection import ConnectionOptions
from rekindle.cli.diagnostics import (
    check_azure,
    check_azureml,
    check_machine,
    check_network,
    check_roles,
)
from rekindle.cli.diagnostics.arm_client import ArmClient
from rekindle.cli.diagnostics.check import CheckResult, CheckStatus
from rekindle.cli.diagnostics.doctor import is_remote_service

OK, MISSING = CheckStatus.OK, CheckStatus.MISSING
DOUBT, SKIPPED = CheckStatus.DOUBT, CheckStatus.SKIPPED


def by_name(checks: Iterator[CheckResult]) -> dict[str, CheckResult]:
    return {check.name: check for check in checks}


def arm(answers: dict[str, Any], **settings: str) -> ArmClient:
    """ARM that knows these paths, for a service with these settings."""

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        body = answers.get(name, {"error": {"message": f"there is no {name}"}})
        return httpx.Response(200 if name in answers else 404, json=body)

    http = httpx.Client(
        transport=httpx.MockTransport(answer), base_url="https://arm/subscriptions/s"
    )
    environment = {"REKINDLE_AZURE_RESOURCE_GROUP": "rekindle"}
    return ArmClient(http, "s", environment | {f"REKINDLE_{k}": v for k, v in settings.items()})


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    first = ports.free(4)
    with socket.create_server(("127.0.0.1", first + 1)):
        check = by_name(check_machine.machine_checks(tmp_path, first, stack_runs=False))["ports"]

    assert check.verdict is MISSING
    assert str(first + 1) in check.found
    assert f"--port {first + 1000}" in check.remedy


def test_ports_of_a_stack_that_runs_are_no_fault(tmp_path: Path) -> None:
    checks = by_name(check_machine.machine_checks(tmp_path, 8080, stack_runs=True))

    assert checks["ports"].verdict is SKIPPED
    assert checks["python"].verdict is OK


def test_without_a_subscription_azure_is_skipped_and_says_why() -> None:
    (only,) = check_azure.azure_checks({})

    assert (only.name, only.verdict) == ("Azure", SKIPPED)
    assert "REKINDLE_AZURE_SUBSCRIPTION_ID" in only.found


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("http://127.0.0.1:8080", False),
        ("http://localhost:8080/v1", False),
        ("http://[::1]:8080", False),
        ("https://localhost.example.com", True),
        ("http://[nonsense", True),
    ],
)
def test_a_service_is_remote_unless_its_host_is_this_machine(url: str, remote: bool) -> None:
    cli = Cli(ConnectionOptions(url), as_json=True)

    assert is_remote_service(cli) is remote


def test_what_a_role_takes_away_is_not_granted_by_its_own_star() -> None:
    most = {"actions": ["*"], "notActions": ["Microsoft.Compute/virtualMachineScaleSets/delete"]}

    checks = by_name(
        check_roles.check_group_roles(arm({"rekindle": {}, "permissions": {"value": [most]}}))
    )

    assert checks["role Virtual Machine Contributor"].verdict is MISSING


IDENTITY = "/subscriptions/s/resourceGroups/rekindle/providers/Microsoft.ManagedIdentity/x/nodes"


@pytest.mark.parametrize(
    ("action", "verdict"),
    [
        ("*/read", MISSING),
        ("Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action", MISSING),
        ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", OK),
    ],
)
def test_machines_are_given_the_nodes_identity(action: str, verdict: CheckStatus) -> None:
    granted = {"value": [{"actions": [action], "notActions": []}]}
    azure = arm({"permissions": granted}, AZURE_IDENTITY_ID=IDENTITY)

    (check,) = check_roles.check_identity_role(azure)

    assert check.verdict is verdict
    assert (check.remedy == "") is (verdict is OK)
    assert verdict is OK or check.remedy.endswith(f"--scope {IDENTITY}")


def test_nodes_without_an_identity_need_no_role_for_it() -> None:
    (check,) = check_roles.check_identity_role(arm({}))

    assert check.verdict is SKIPPED


def test_a_subnet_is_checked_where_only_azure_ml_offers_machines() -> None:
    subnet = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/x/subnets/nodes"
    settings = {"OFFERINGS": "Standard_ND96@eastus:azureml", "AZURE_SUBNET_ID": subnet}

    checks = by_name(
        check_roles.check_group_roles(
            arm({"rekindle": {}, "permissions": {"value": []}}, **settings)
        )
    )

    assert checks["role Network Contributor"].remedy.endswith(f"--scope {subnet}")


def test_roles_that_cannot_be_read_are_a_doubt_and_no_fault() -> None:
    checks = by_name(check_roles.check_group_roles(arm({"rekindle": {}})))

    assert checks["role Virtual Machine Contributor"].verdict is DOUBT


def test_an_image_without_a_registry_can_be_pulled_by_no_node() -> None:
    check = check_network.check_trainer_image("rekindle-trainer:latest")

    assert check.verdict is MISSING
    assert "has no registry" in check.found


@pytest.mark.parametrize(
    ("url", "address", "fault", "verdict", "expected"),
    [
        ("https://rekindle.example", "9.9.9.9", "", OK, "public address"),
        ("https://rekindle.example", "9.9.9.9", "expired", MISSING, "expired"),
        ("https://rekindle.example", "10.0.0.4", "", DOUBT, "must be peered"),
        ("http://rekindle.example", "9.9.9.9", "", DOUBT, "not HTTPS"),
        ("https://localhost", "127.0.0.1", "", MISSING, "a local address"),
    ],
)
def test_nodes_must_reach_the_public_url_by_its_address_and_certificate(
    url: str, address: str, fault: str, verdict: CheckStatus, expected: str
) -> None:
    check = check_network.check_addresses(url, {address}, fault)

    assert check.verdict is verdict
    assert expected in check.found


@pytest.mark.parametrize(("seconds", "verdict"), [(59, OK), (-61, MISSING), (61, MISSING)])
def test_clocks_may_be_a_minute_apart(seconds: int, verdict: CheckStatus) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    check = check_network.check_skew(
        format_datetime(now + timedelta(seconds=seconds), usegmt=True), now
    )

    assert check.verdict is verdict


@pytest.mark.parametrize(
    ("properties", "verdict", "expected"),
    [
        ({"addressPrefix": "10.0.0.0/29"}, OK, "3 free addresses"),
        (
            {"addressPrefix": "10.0.0.0/29", "ipConfigurations": [{}] * 3},
            MISSING,
            "no free address",
        ),
        ({"addressPrefix": "172.16.4.0/24"}, DOUBT, "RDMA"),
        (
            {"addressPrefix": "10.0.0.0/24", "defaultOutboundAccess": False},
            DOUBT,
            "no outbound access",
        ),
    ],
)
def test_a_subnet_needs_free_addresses_and_a_way_out(
    properties: dict[str, Any], verdict: CheckStatus, expected: str
) -> None:
    azure = arm(
        {"nodes": {"properties": properties}},
        AZURE_SUBNET_ID="/subnets/nodes",
        OFFERINGS="Standard_X@eastus",
    )

    (check,) = check_network.check_subnet(azure)

    assert check.verdict is verdict
    assert expected in check.found


def test_a_look_that_fails_or_hangs_stops_no_other() -> None:
    release = threading.Event()

    def hang(_azure: ArmClient) -> list[CheckResult]:
        release.wait()
        return []

    def fail(azure: ArmClient) -> list[CheckResult]:
        return [azure.get("/nothing", "2024-07-01")]

    def misread(_azure: ArmClient) -> list[CheckResult]:
        raise KeyError("value")

    every: dict[str, check_azure.AzureCheck] = {
        "hangs": hang,
        "fails": fail,
        "misreads": misread,
        "role": check_roles.check_identity_role,
    }
    checks = by_name(check_azure.run_checks(arm({}), 0.2, every))
    release.set()

    assert {n: str(c.verdict) for n, c in checks.items()} == {
        "hangs": "doubt",
        "fails": "doubt",
        "misreads": "doubt",
        "role Managed Identity Operator": "skipped",
    }


SPACE = {"AZUREML_WORKSPACE": "ws", "OFFERINGS": "Standard_NC24ads_A100_v4@eastus:azureml"}
LOW = {"name": {"value": "Cluster LowPriority vCPUs"}, "limit": 48, "currentValue": 24}
READY = {
    "Microsoft.MachineLearningServices": {"registrationState": "Registered"},
    "ws": {"location": "eastus"},
    "permissions": {"value": [{"actions": ["*"], "notActions": []}]},
    "usages": {"value": [LOW]},
}


def test_a_workspace_with_all_that_clusters_need_is_well() -> None:
    checks = list(check_azureml.workspace_checks(arm(READY, **SPACE)))

    assert {check.verdict for check in checks} == {OK}
    assert len(checks) == 5


@pytest.mark.parametrize(
    ("answers", "name", "verdict", "remedy"),
    [
        ({"ws": None}, "Azure ML workspace", MISSING, "az ml workspace create -n ws"),
        ({"ws": {"location": "uksouth"}}, "Azure ML workspace", DOUBT, "region"),
        (
            {"usages": {"value": [LOW | {"currentValue": 48}]}},
            "Azure ML quota of Standard_NC24ads_A100_v4@eastus",
            MISSING,
            "Request quota",
        ),
        (
            {"permissions": {"value": [{"actions": ["*/read"], "notActions": []}]}},
            "role AzureML Compute Operator",
            MISSING,
            "az role assignment create",
        ),
    ],
)
def test_what_a_workspace_lacks_comes_with_its_remedy(
    answers: dict[str, Any], name: str, verdict: CheckStatus, remedy: str
) -> None:
    present = {k: v for k, v in (READY | answers).items() if v is not None}
    check = by_name(check_azureml.workspace_checks(arm(present, **SPACE)))[name]

    assert check.verdict is verdict
    assert remedy in check.remedy


TEAM = {
    "location": "eastus",
    "properties": {
        "properties": {
            "vmSize": "STANDARD_NC24ADS_A100_V4",
            "vmPriority": "LowPriority",
            "scaleSettings": {"maxNodeCount": 4},
        }
    },
}


@pytest.mark.parametrize(
    ("offering", "answers", "verdict", "expected"),
    [
        ("Standard_NC24ads_A100_v4@eastus", {"team": TEAM}, OK, "up to 4 machines"),
        ("Standard_NC24ads_A100_v4@eastus", {}, MISSING, "correct its name"),
        ("Standard_NC24ads_A100_v4@eastus:on_demand", {"team": TEAM}, MISSING, "Dedicated"),
        ("Standard_ND96asr_v4@eastus", {"team": TEAM}, MISSING, "Correct the offering"),
    ],
)
def test_a_named_cluster_is_compared_with_its_offering(
    offering: str, answers: dict[str, Any], verdict: CheckStatus, expected: str
) -> None:
    azure = arm(READY | answers, AZUREML_WORKSPACE="ws", OFFERINGS=f"{offering}:azureml=team")
    checks = by_name(check_azureml.workspace_checks(azure))

    assert checks["Azure ML cluster team"].verdict is verdict
    assert (
        expected
        in f"{checks['Azure ML cluster team'].found} {checks['Azure ML cluster team'].remedy}"
    )
    assert not [name for name in checks if name.startswith("Azure ML quota")]


MLFLOW = {"MLFLOW_TRACKING_URI": "azureml://eastus.api.azureml.ms/mlflow/v1.0/subscriptions/s"}


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"experiment": {"experiment_id": "1"}}, OK),
        ({"error_code": "RESOURCE_DOES_NOT_EXIST"}, OK),
        ({"error": {"message": "no such workspace"}}, MISSING),
    ],
)
def test_a_workspaces_mlflow_is_asked(body: dict[str, Any], verdict: CheckStatus) -> None:
    requests = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200 if "experiment" in body else 404, json=body)

    http = httpx.Client(
        transport=httpx.MockTransport(respond), headers={"authorization": "Bearer the-token"}
    )
    azure = ArmClient(http, "s", {f"REKINDLE_{k}": v for k, v in MLFLOW.items()})
    (check,) = check_azureml.workspace_checks(azure)

    assert (check.name, check.verdict) == ("Azure ML MLflow server", verdict)
    assert verdict is OK or "--query mlflow_tracking_uri" in check.remedy
    assert requests[0].url.host == "eastus.api.azureml.ms"
    assert requests[0].url.path.startswith("/mlflow/v2.0/subscriptions/s/api/2.0/mlflow/")
    assert requests[0].headers["authorization"] == "Bearer the-token"


def test_without_an_offering_of_azure_ml_its_workspace_is_not_looked_at() -> None:
    azure = arm({}, OFFERINGS="Standard_NC24ads_A100_v4@eastus:on_demand")

    assert list(check_azureml.workspace_checks(azure)) == []
    assert azure.offerings == [("Standard_NC24ads_A100_v4", "eastus", False)]
