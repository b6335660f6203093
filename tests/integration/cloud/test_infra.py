"""The template of `infra/`, deployed: what it makes is what the service needs, and no more."""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.identity.aio import ManagedIdentityCredential

from service.cloud.azure.adapter import AzureCloud
from service.cloud.azure.template import AzureSettings
from service.cloud.provider import OWNER_TAG, Misconfigured, ScaleSetNotFound
from service.domain.cloud.fleet import Offering, ScaleSetPhase, ScaleSetSpec
from service.domain.ids import new_id
from service.domain.states import CapacityType
from service.settings import Settings
from tests.emulated.process import GROUP, PATIENCE, SUBSCRIPTION, TENANT, Emulator, wait_for
from tests.waiting import until

INFRA = Path(__file__).parents[3] / "infra"
TEMPLATE = json.loads((INFRA / "main.json").read_text())
ROLE = next(r for r in TEMPLATE["resources"] if r["type"].endswith("/roleDefinitions"))
ACTIONS: list[str] = ROLE["properties"]["permissions"][0]["actions"]
IN_GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
DEPLOYMENT = f"{IN_GROUP}/providers/Microsoft.Resources/deployments/infra"
VERSION = "?api-version=2025-04-01"
SIZE = "Standard_ND96amsr_A100_v4"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"  # Storage Blob Data Contributor
PASSED = {
    "sshPublicKey": "ssh-ed25519 AAAA somebody",
    "databasePassword": "Correct-horse-7",
    "secretKey": "0123456789abcdef0123456789abcdef",
}
START = datetime(2026, 1, 1, tzinfo=UTC)
Verb = Callable[[AzureCloud, str], Awaitable[object]]


@dataclass
class Deployed:
    """An emulator that enforces access, its owner, and what the template put out."""

    emulator: Emulator
    owner: httpx.Client
    outputs: dict[str, str]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Yield the template in a resource group of its own."""
    folder = tmp_path_factory.mktemp("azure")
    flags = ("--create-seconds", "0", "--delete-seconds", "0", "--page-size", "5")
    emulator = Emulator(folder, "--access", "enforced", "--hollow", "--spot-quota", "9600", *flags)
    owner = sign_in_owner(emulator)
    owner.put(IN_GROUP + VERSION, json={"location": "eastus"}).raise_for_status()
    yield Deployed(emulator, owner, deploy(owner))
    owner.close()
    emulator.stop()


@pytest.fixture
async def cloud(azure: Deployed, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a generator
    """Yield the service's adapter, as the identity that the template made for the service."""
    client_id = azure.outputs["AZURE_CLIENT_ID"]
    principal = azure.emulator.admin("principals", {"client_id": client_id}).json()
    for name, value in principal["environment"].items():
        monkeypatch.setenv(name, value)
    settings = AzureSettings(
        subscription_id=azure.outputs["REKINDLE_AZURE_SUBSCRIPTION_ID"],
        resource_group=azure.outputs["REKINDLE_AZURE_RESOURCE_GROUP"],
        owner=azure.outputs["REKINDLE_DEPLOYMENT"],
        subnet_id=azure.outputs["REKINDLE_AZURE_SUBNET_ID"],
        identity_id=azure.outputs["REKINDLE_AZURE_IDENTITY_ID"],
        ssh_public_key=azure.outputs["REKINDLE_AZURE_SSH_PUBLIC_KEY"],
    )
    credential = ManagedIdentityCredential(client_id=client_id)
    emulator = azure.emulator
    azure_cloud = AzureCloud(settings, credential, base_url=emulator.arm_url, ca_path=emulator.ca)
    yield azure_cloud
    await azure_cloud.close()


async def test_the_service_lives_on_the_role_that_the_template_gives_it(
    azure: Deployed, cloud: AzureCloud
) -> None:
    await cloud.create(spec("rk-whole-life"))
    wait_for(lambda: len(azure.emulator.machines("rk-whole-life")) == 2)
    observed_set = await cloud.get("rk-whole-life")
    owned = await cloud.list_owned()
    await cloud.delete("rk-whole-life")
    wait_for(lambda: not azure.emulator.machines("rk-whole-life"))

    assert (observed_set.name, len(observed_set.instances)) == ("rk-whole-life", 2)
    assert "rk-whole-life" in [scale_set.name for scale_set in owned]
    with pytest.raises(ScaleSetNotFound):
        await cloud.get("rk-whole-life")


COMPUTE = "Microsoft.Compute/virtualMachineScaleSets"
CALLS: dict[str, Verb] = {
    "create": lambda cloud, name: cloud.create(spec(f"{name}-new")),
    "delete": lambda cloud, name: cloud.delete(name),
    "get": lambda cloud, name: cloud.get(name),
    "get_failed": lambda cloud, _: cloud.get("rk-no-room"),
    "list_owned": lambda cloud, _: cloud.list_owned(),
    "list_tagged": lambda cloud, _: cloud.list_tagged(),
    "refill": lambda cloud, name: cloud.refill(name, 2),
    "serial_log": lambda cloud, name: cloud.serial_log(name, "0"),
}
NEEDED = [
    (f"{COMPUTE}/read", "get"),
    (f"{COMPUTE}/read", "list_owned"),
    (f"{COMPUTE}/write", "create"),
    (f"{COMPUTE}/delete", "delete"),
    (f"{COMPUTE}/delete/action", "refill"),
    (f"{COMPUTE}/instanceView/read", "get_failed"),
    (f"{COMPUTE}/virtualMachines/read", "get"),
    (f"{COMPUTE}/virtualMachines/retrieveBootDiagnosticsData/action", "serial_log"),
    ("Microsoft.Network/virtualNetworks/subnets/join/action", "create"),
    ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", "create"),
    ("Microsoft.Resources/subscriptions/resourcegroups/resources/read", "list_tagged"),
]
OTHER_KINDS = [
    "Microsoft.Compute/disks",
    "Microsoft.Compute/snapshots",
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Network/networkInterfaces",
    "Microsoft.Network/networkSecurityGroups",
    "Microsoft.Network/publicIPAddresses",
]
# Those that the emulator lets one make by themselves, and with what.
KEPT: dict[str, dict[str, Any]] = {
    "Microsoft.Network/networkSecurityGroups": {},
    "Microsoft.Network/publicIPAddresses": {
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"},
    },
}


@pytest.mark.parametrize(("action", "call"), NEEDED)
async def test_without_an_action_the_call_that_needs_it_is_refused(
    azure: Deployed, cloud: AzureCloud, action: str, call: str
) -> None:
    name = f"rk-{NEEDED.index((action, call))}"
    await cloud.create(spec(name))
    if call == "get_failed":
        await fail_one(azure, cloud)
    if call == "refill":
        await let_one_linger(azure, cloud, name)
    put_role(azure, [granted for granted in ACTIONS if granted != action])
    try:
        with pytest.raises(Misconfigured) as error:
            await CALLS[call](cloud, name)
    finally:
        put_role(azure, ACTIONS)

    assert error.value.code in ("AuthorizationFailed", "LinkedAuthorizationFailed")
    assert action in str(error.value)


@pytest.mark.parametrize("kind", sorted(KEPT))
async def test_without_the_right_to_read_a_type_the_list_by_tag_is_silent_about_it(
    azure: Deployed, cloud: AzureCloud, kind: str
) -> None:
    url = f"{IN_GROUP}/providers/{kind}/left-over{VERSION}"
    tags = {OWNER_TAG: azure.outputs["REKINDLE_DEPLOYMENT"]}
    resource_body = {"location": "eastus", "tags": tags, **KEPT[kind]}
    azure.owner.put(url, json=resource_body).raise_for_status()
    tagged = await cloud.list_tagged()
    put_role(azure, [action for action in ACTIONS if action != f"{kind}/read"])
    try:
        tagged_after = await cloud.list_tagged()
    finally:
        put_role(azure, ACTIONS)
        azure.owner.delete(url).raise_for_status()

    assert ([(r.kind, r.name) for r in tagged], tagged_after) == ([(kind, "left-over")], [])


def test_the_role_has_no_action_that_no_call_needs() -> None:
    permissions_needed = {f"{kind}/read" for kind in OTHER_KINDS}

    assert sorted(ACTIONS) == sorted(permissions_needed | {action for action, _ in NEEDED})


def test_what_the_template_puts_out_are_settings_of_the_service(azure: Deployed) -> None:
    setting_outputs = [name for name in azure.outputs if name.startswith("REKINDLE_")]
    setting_names = {f"REKINDLE_{field.upper()}" for field in Settings.model_fields}

    assert setting_outputs
    assert set(setting_outputs) <= setting_names
    assert not any("assword" in value or "Key=" in value for value in azure.outputs.values())


def test_nodes_do_not_meet_the_range_that_rdma_uses(azure: Deployed) -> None:
    url = f"{IN_GROUP}/providers/Microsoft.Network/virtualNetworks/rekindle-network{VERSION}"
    network = azure.owner.get(url).json()["properties"]
    prefixes = [ip_network(p) for p in network["addressSpace"]["addressPrefixes"]]

    assert not any(p.overlaps(ip_network("172.16.0.0/16")) for p in prefixes)


def test_lifecycle_rules_cool_old_jobs_and_delete_them_only_if_set(azure: Deployed) -> None:
    account = azure.outputs["storageAccount"]
    url = f"{IN_GROUP}/providers/Microsoft.Storage/storageAccounts/{account}"
    policy = azure.owner.get(f"{url}/managementPolicies/default{VERSION}").json()["properties"]
    rules = {rule["name"]: rule for rule in policy["policy"]["rules"]}
    cool_rule, deletion_rule = rules["jobs-cool-down"], rules["abandoned-jobs-go"]

    assert (cool_rule["enabled"], deletion_rule["enabled"]) == (True, False)
    for rule in (cool_rule, deletion_rule):
        assert rule["definition"]["filters"]["prefixMatch"] == [new_id("ftjob", START)[:6]]
    assert cool_rule["definition"]["actions"]["baseBlob"] == {
        "tierToCool": {"daysAfterModificationGreaterThan": 30},
        "tierToCold": {"daysAfterModificationGreaterThan": 90},
    }
    assert deploy(azure.owner, deleteAfterDays=400) == azure.outputs
    policy = azure.owner.get(f"{url}/managementPolicies/default{VERSION}").json()["properties"]
    deletion_rule = next(r for r in policy["policy"]["rules"] if r["name"] == "abandoned-jobs-go")
    deletes = deletion_rule["definition"]["actions"]["baseBlob"]["delete"]
    assert (deletion_rule["enabled"], deletes) == (True, {"daysAfterModificationGreaterThan": 400})
    deploy(azure.owner)


def test_the_account_refuses_its_keys_and_the_service_signs_in(azure: Deployed) -> None:
    account = (
        f"{IN_GROUP}/providers/Microsoft.Storage/storageAccounts/"
        + (azure.outputs["storageAccount"])
    )
    properties = azure.owner.get(account + VERSION).json()["properties"]
    url = f"{account}/providers/Microsoft.Authorization/roleAssignments{VERSION}"
    roles = {
        row["properties"]["roleDefinitionId"].rsplit("/", 1)[-1]
        for row in azure.owner.get(f"{url}&$filter=atScope()").json()["value"]
        if row["properties"]["scope"].lower() == account.lower()
    }

    assert properties["allowSharedKeyAccess"] is False
    assert roles == {BLOB_CONTRIBUTOR}
    assert azure.outputs["REKINDLE_STORAGE"] == properties["primaryEndpoints"]["blob"]


def test_deploying_again_changes_nothing(azure: Deployed) -> None:
    assert deploy(azure.owner) == azure.outputs


def test_a_deployment_needs_the_right_to_each_resource(azure: Deployed) -> None:
    principal = azure.emulator.admin(
        "principals", {"client_id": "deployer", "secret": "any"}
    ).json()
    grant(azure, principal["object_id"], CONTRIBUTOR)
    deployer = sign_in(azure.emulator, "deployer", "any")
    url = f"{IN_GROUP}/providers/Microsoft.Resources/deployments/mine{VERSION}"
    response = deployer.put(url, json=body(namePrefix="another"), timeout=PATIENCE)
    status = deployer.get(url).status_code
    deployer.close()
    first, *further_errors = response.json()["error"]["message"].split("'.:Authorization failed")

    assert (response.status_code, status) == (400, 404)
    assert first.startswith("Deployment failed with multiple errors: 'Authorization failed for ")
    assert all(" action 'Microsoft.Authorization/role" in text for text in (first, *further_errors))


def deploy(owner: httpx.Client, **parameters: str | int) -> dict[str, str]:
    """Deploy the template to its end and return its outputs."""
    template_body = body(**parameters)
    response = owner.put(
        DEPLOYMENT + VERSION, json=template_body, timeout=PATIENCE
    ).raise_for_status()
    poll = response.headers["Azure-AsyncOperation"]
    wait_for(lambda: owner.get(poll).json()["status"] not in ("Accepted", "Running"))
    properties = owner.get(DEPLOYMENT + VERSION).json()["properties"]
    assert properties["provisioningState"] == "Succeeded", properties.get("error")
    rows = properties["outputs"].items()  # ARM changes capitals: README.md turns them back
    return {(name.upper() if "_" in name else name): output["value"] for name, output in rows}


def body(**parameters: str | int) -> dict[str, Any]:
    """Return what `az deployment group create` sends."""
    passed = {name: {"value": value} for name, value in (PASSED | parameters).items()}
    return {"properties": {"mode": "Incremental", "template": TEMPLATE, "parameters": passed}}


def sign_in_owner(emulator: Emulator) -> httpx.Client:
    """Return a client of the owner, who may do everything in a new emulator."""
    facts = json.loads((emulator.state / "access" / "owner.json").read_text())
    return sign_in(emulator, facts["client_id"], facts["client_secret"])


def sign_in(emulator: Emulator, client_id: str, secret: str) -> httpx.Client:
    """Return a client with somebody's token."""
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "scope": f"{emulator.arm_url}/.default",
    }
    client = emulator.http()
    response = client.post(f"/{TENANT}/oauth2/v2.0/token", data=form).raise_for_status()
    client.headers["Authorization"] = f"Bearer {response.json()['access_token']}"
    return client


def grant(azure: Deployed, principal: str, role: str) -> None:
    """Give somebody a built-in role in the group."""
    definition = f"/providers/Microsoft.Authorization/roleDefinitions/{role}"
    properties = {"roleDefinitionId": definition, "principalId": principal}
    url = f"{IN_GROUP}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}{VERSION}"
    azure.owner.put(url, json={"properties": properties}).raise_for_status()


def put_role(azure: Deployed, actions: list[str]) -> None:
    """Change what the service's role allows."""
    definitions = f"{IN_GROUP}/providers/Microsoft.Authorization/roleDefinitions"
    roles = azure.owner.get(f"{definitions}{VERSION}&$filter=type eq 'CustomRole'").json()["value"]
    [role] = [row for row in roles if row["properties"]["roleName"].startswith("Rekindle")]
    properties = role["properties"]
    properties["permissions"][0]["actions"] = actions
    url = f"{definitions}/{role['name']}{VERSION}"
    azure.owner.put(url, json={"properties": properties}).raise_for_status()


async def fail_one(azure: Deployed, cloud: AzureCloud) -> None:
    """Have Azure run out of room for a scale set that it had accepted."""
    offering = {"region": "westus2", "vm_size": SIZE}
    azure.emulator.admin("capacity", {**offering, "available": 0}).raise_for_status()
    await cloud.create(spec("rk-no-room", region="westus2"))
    url = f"{IN_GROUP}/providers/{COMPUTE}/rk-no-room?api-version=2026-04-01"

    def state() -> str:
        return str(azure.owner.get(url).json()["properties"]["provisioningState"])

    wait_for(lambda: state() == "Failed")
    assert (await cloud.get("rk-no-room")).phase is ScaleSetPhase.FAILED


async def let_one_linger(azure: Deployed, cloud: AzureCloud, name: str) -> None:
    """Have a machine stay in the list, stopped, as an eviction may leave it."""
    wait_for(lambda: len(azure.emulator.machines(name)) == 2)
    url = f"{IN_GROUP}/providers/{COMPUTE}/{name}/poweroff?api-version=2026-04-01"
    azure.owner.post(url, json={"instanceIds": ["0"]}).raise_for_status()

    async def running() -> list[bool]:
        return [i.running for i in (await cloud.get(name)).instances]

    await until(running, lambda states: states == [False, True])


def spec(name: str, region: str = "eastus") -> ScaleSetSpec:
    """Two Spot nodes."""
    return ScaleSetSpec(
        name=name,
        offering=Offering(region=region, vm_size=SIZE, capacity_type=CapacityType.SPOT),
        instance_count=2,
        cloud_init="#cloud-config\n",
    )
