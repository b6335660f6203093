"""Each check of `rekindle doctor` on Azure, red and green, against the emulator over real HTTP."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from rekindle.cli.diagnostics import check_azure
from rekindle.cli.diagnostics.check import CheckResult, CheckStatus
from tests.emulated.process import GROUP, SUBSCRIPTION, TENANT, VERSION, Emulator

ROOT = f"/subscriptions/{SUBSCRIPTION}"
IN_GROUP = f"{ROOT}/resourceGroups/{GROUP}"
NETWORK = f"{IN_GROUP}/providers/Microsoft.Network/virtualNetworks/nodes"
SUBNET = f"{NETWORK}/subnets/nodes"
ACCOUNT = f"{IN_GROUP}/providers/Microsoft.Storage/storageAccounts/rekindletest"
IDENTITY = f"{IN_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
KEYS = f"{IN_GROUP}/providers/Microsoft.Compute/diskEncryptionSets/keys"
PROVIDERS = f"{ROOT}/providers"
FEATURE = f"{PROVIDERS}/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
NC, ND = "Standard_NC24ads_A100_v4", "Standard_ND96amsr_A100_v4"
SMALL, LARGE = f"{NC}@eastus", f"{ND}@eastus"
Request = tuple[str, str, Any]  # verb, path, body


@dataclass(frozen=True)
class Case:
    """A check, what makes it red or green, and what it says then."""

    check: str
    verdict: CheckStatus
    expected_text: str
    remedy: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    before: tuple[Request, ...] = ()
    after: tuple[Request, ...] = ()
    restriction: dict[str, Any] | None = None


def policy(**members: object) -> dict[str, str]:
    """Return the AZURE_POLICY setting with these members."""
    return {"AZURE_POLICY": json.dumps(members)}


def subnet(*delegations: str) -> Request:
    """Return the request that sets the subnet's delegations."""
    rows = [{"name": d, "properties": {"serviceName": d}} for d in delegations]
    return "PUT", SUBNET, {"properties": {"addressPrefix": "10.0.0.0/24", "delegations": rows}}


def firewall(action: str) -> Request:
    """Return the request that sets the firewall of the storage account."""
    return "PATCH", ACCOUNT, {"properties": {"networkAcls": {"defaultAction": action}}}


def compute(order: str) -> Request:
    """Return the request that registers or unregisters the compute provider."""
    return "POST", f"{PROVIDERS}/Microsoft.Compute/{order}", {}


def large(**members: object) -> dict[str, str]:
    """Return the settings that offer the large size, with this policy."""
    return {"OFFERINGS": LARGE} | policy(**members)


OK, MISSING, DOUBT = CheckStatus.OK, CheckStatus.MISSING, CheckStatus.DOUBT
SKUS, IMAGES = "az vm list-skus", "az vm image list"
HPC = "microsoft-dsvm:ubuntu-hpc"
MACHINES = "role Virtual Machine Contributor"
ASSIGN = "az role assignment create --assignee-object-id "
AS_READER = {"AZURE_CLIENT_ID": "reader", "AZURE_CLIENT_SECRET": "only-reads"}
CASES = [
    Case("resource group", OK, GROUP),
    Case(
        "resource group", MISSING, "not be found", "az group create", {"AZURE_RESOURCE_GROUP": "no"}
    ),
    Case(MACHINES, OK, "granted"),
    Case(MACHINES, MISSING, "virtualMachineScaleSets/write", ASSIGN, AS_READER),
    Case("role Network Contributor", OK, "granted"),
    Case("role Network Contributor", MISSING, "subnets/join/action", ASSIGN, AS_READER),
    Case("role Managed Identity Operator", OK, "granted"),
    Case("role Managed Identity Operator", MISSING, "assign/action", ASSIGN, AS_READER),
    Case("role Reader of the subscription", OK, "granted"),
    Case("provider Microsoft.Compute", OK, "registered"),
    Case(
        "provider Microsoft.Compute",
        MISSING,
        "NotRegistered",
        "az provider register",
        before=(compute("unregister"),),
        after=(compute("register"),),
    ),
    Case(f"size {SMALL}", OK, "sold"),
    Case(
        f"size {SMALL}",
        MISSING,
        "NotAvailableForSubscription",
        SKUS,
        restriction={"vm_size": NC, "region": "eastus"},
    ),
    Case(f"size {LARGE}", MISSING, "TrustedLaunch", SKUS, large(security_type="TrustedLaunch")),
    Case(f"size {LARGE}", MISSING, "not on NvmeDisk", SKUS, large(os_disk_placement="NvmeDisk")),
    Case(f"size {LARGE}", MISSING, "not sold in zone 3", SKUS, large(zones={"eastus": "3"})),
    Case(f"quota of {SMALL}", OK, "24 of 24 Spot cores free"),
    Case(
        f"quota of {LARGE}", MISSING, "Spot cores free, 96", "az quota update", {"OFFERINGS": LARGE}
    ),
    Case(
        f"quota of {LARGE}", OK, "NDAMSv4_A100Family cores", "", {"OFFERINGS": f"{LARGE}:on_demand"}
    ),
    Case("VM image", OK, "in eastus"),
    Case("VM image", MISSING, "was not found", IMAGES, {"AZURE_IMAGE": f"{HPC}:1804:latest"}),
    Case("VM image", MISSING, "does not exist", IMAGES, {"AZURE_IMAGE": f"{HPC}:2204:1.0"}),
    Case(
        "encryption at host",
        MISSING,
        "NotRegistered",
        "az feature register",
        policy(encryption_at_host=True),
    ),
    Case("disk encryption set", OK, "keys", "", policy(disk_encryption_set_id=KEYS)),
    Case(
        "disk encryption set",
        MISSING,
        "not found",
        ASSIGN,
        policy(disk_encryption_set_id=f"{KEYS}-gone"),
    ),
    Case("subnet", OK, "251 free addresses"),
    Case(
        "subnet",
        MISSING,
        "delegated to Microsoft.Sql",
        "az network vnet subnet update",
        before=(subnet("Microsoft.Sql/managedInstances"),),
        after=(subnet(),),
    ),
    Case("storage firewall", OK, "admits"),
    Case(
        "storage firewall",
        OK,
        "admits the nodes",
        "",
        {"STORAGE": "https://rekindletest.blob.core.windows.net"},
    ),
    Case(
        "storage firewall",
        MISSING,
        "blocks the nodes' subnet",
        "az storage account network-rule add",
        before=(firewall("Deny"),),
        after=(firewall("Allow"),),
    ),
    Case("public URL", MISSING, "nodes cannot reach", "az network dns"),
    Case("clock of Azure", OK, "the same"),
]


@dataclass
class Deployed:
    """An emulator that enforces access, and its owner; what was asked once is kept."""

    emulator: Emulator
    owner: httpx.Client
    settings: dict[str, str]
    seen: dict[str, list[CheckResult]] = field(default_factory=dict)

    def order(self, *requests: Request) -> None:
        """Make these requests as the owner."""
        for verb, path, body in requests:
            self.owner.request(verb, path + VERSION, json=body).raise_for_status()

    def checks(self, settings: dict[str, str], state: object = None) -> list[CheckResult]:
        """All lines with these settings changed, in this state of the subscription."""
        key = f"{settings} {state}"
        if key not in self.seen:
            environment = {f"REKINDLE_{k}": v for k, v in (self.settings | settings).items()}
            self.seen[key] = list(check_azure.subscription_checks(environment))
        return self.seen[key]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Yield an emulated subscription that is set up to run Rekindle."""
    options = ("--access", "enforced", "--hollow", "--spot-quota", "24")
    emulator = Emulator(tmp_path_factory.mktemp("azure"), *options)
    facts = json.loads((emulator.state / "access" / "owner.json").read_text())
    client = {"client_id": facts["client_id"], "client_secret": facts["client_secret"]}
    owner = emulator.http()
    form = {"grant_type": "client_credentials", "scope": f"{emulator.arm_url}/.default", **client}
    response = owner.post(f"/{TENANT}/oauth2/v2.0/token", data=form).raise_for_status()
    owner.headers["Authorization"] = f"Bearer {response.json()['access_token']}"
    reader = emulator.admin("principals", {"client_id": "reader", "secret": "only-reads"})
    settings = {
        "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
        "AZURE_RESOURCE_GROUP": GROUP,
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": client["client_id"],
        "AZURE_CLIENT_SECRET": client["client_secret"],
        "AZURE_ENDPOINT": emulator.arm_url,
        "AZURE_CA": emulator.ca,
        "AZURE_SUBNET_ID": SUBNET,
        "AZURE_IDENTITY_ID": IDENTITY,
        "OFFERINGS": SMALL,
        "STORAGE": "DefaultEndpointsProtocol=https;AccountName=rekindletest;AccountKey=none",
        "PUBLIC_URL": "http://127.0.0.1:8080",
    }
    deployment = Deployed(emulator, owner, settings)
    deployment.order(
        ("PUT", IN_GROUP, {"location": "eastus"}),
        (
            "PUT",
            NETWORK,
            {
                "location": "eastus",
                "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
            },
        ),
        subnet(),
        ("PUT", ACCOUNT, {"location": "eastus", "sku": {"name": "Standard_LRS"}}),
        ("PUT", IDENTITY, {"location": "eastus"}),
        ("PUT", KEYS, {"location": "eastus"}),
        role(READER, reader.json()["object_id"]),
    )
    yield deployment
    owner.close()
    emulator.stop()


def role(name: str, principal: str) -> Request:
    """Return the request that assigns a role in the subscription to a principal."""
    path = f"{ROOT}/providers/Microsoft.Authorization/roleAssignments/{principal}"
    definition = f"{ROOT}/providers/Microsoft.Authorization/roleDefinitions/{name}"
    properties = {"roleDefinitionId": definition, "principalId": principal}
    return "PUT", path, {"properties": properties | {"principalType": "ServicePrincipal"}}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.check}-{case.verdict}-{case.expected_text}"
)
def test_a_red_check_ends_with_the_command_that_mends_it(azure: Deployed, case: Case) -> None:
    azure.order(*case.before)
    if case.restriction:
        azure.emulator.admin("market/restrictions", case.restriction).raise_for_status()
    try:
        checks = azure.checks(case.settings, (case.before, case.restriction))
    finally:
        azure.order(*case.after)
        if case.restriction:
            restriction = case.restriction | {"reason": None}
            azure.emulator.admin("market/restrictions", restriction).raise_for_status()

    (line,) = (c for c in checks if c.name == case.check)
    assert line.verdict is case.verdict, line
    assert case.expected_text in line.found
    assert case.remedy in line.remedy
    assert bool(line.remedy) is (case.verdict is not OK)


def test_a_feature_that_was_registered_is_green(azure: Deployed) -> None:
    azure.order(("POST", f"{FEATURE}/register", {}))

    checks_by_name = {
        c.name: c for c in azure.checks(policy(encryption_at_host=True), "registered")
    }

    assert checks_by_name["encryption at host"].verdict is OK


def test_settings_that_make_no_sense_stop_no_other_check(azure: Deployed) -> None:
    checks_by_name = {
        c.name: c for c in azure.checks({"AZURE_POLICY": "{", "OFFERINGS": "nonsense"})
    }

    assert checks_by_name["encryption"].verdict is DOUBT
    assert checks_by_name["resource group"].verdict is OK
    assert checks_by_name["clock of Azure"].verdict is OK
