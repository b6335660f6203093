"""What clients other than ours ask, in the form in which they ask it."""

from typing import Any

import httpx
import pytest

from tests.emulated.inside import HERE, Inside
from tests.emulated.process import GROUP, scale_set
from tests.unit.emulator.deployments.deployed import deploy, network, template

GROUP_URL = f"{HERE}/resourceGroups/{GROUP}"
PROVIDERS = f"{GROUP_URL}/providers"
SETS = f"{PROVIDERS}/Microsoft.Compute/virtualMachineScaleSets"
IMAGES = f"{HERE}/providers/Microsoft.Compute/locations/eastus/publishers"
UBUNTU = f"{IMAGES}/Canonical/artifacttypes/vmimage/offers/ubuntu-24_04-lts/skus/server/versions"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_finished_action_answers_200_at_its_location(inside: Inside) -> None:
    await inside.arm.put(f"{SETS}/rk", json=scale_set(1))
    await inside.pass_time(4)
    for method, path in (("POST", f"{SETS}/rk/restart"), ("DELETE", f"{SETS}/rk")):
        accepted = await inside.arm.request(method, path)
        await inside.pass_time(8)
        assert (await inside.follow(accepted.headers["Location"])).status_code == 200


async def test_a_storage_account_is_never_answered_with_201(inside: Inside) -> None:
    body = {"location": "eastus", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    made = await inside.arm.put(f"{PROVIDERS}/Microsoft.Storage/storageAccounts/abc", json=body)

    assert made.status_code == 200


async def test_head_says_whether_a_resource_exists(inside: Inside) -> None:
    await inside.arm.put(f"{SETS}/rk", json=scale_set(0))
    there, gone = [await inside.arm.head(f"{SETS}/{name}") for name in ("rk", "no")]

    assert (there.status_code, there.content, gone.status_code) == (204, b"", 404)


async def test_empty_segments_of_a_path_are_passed_over(inside: Inside) -> None:
    answer = await inside.arm.get(f"https://azure/{HERE}//resourceGroups/{GROUP}")

    assert answer.json()["name"] == GROUP


async def test_providers_and_regions_are_told(inside: Inside) -> None:
    every = (await inside.arm.get(f"{HERE}/providers")).json()["value"]
    one = (await inside.arm.post(f"{HERE}/providers/microsoft.compute/register")).json()
    regions = (await inside.arm.get(f"{HERE}/locations")).json()["value"]

    assert {"Microsoft.Network", "Microsoft.Storage"} <= {row["namespace"] for row in every}
    assert one["registrationState"] == "Registered"
    assert "virtualMachineScaleSets" in {row["resourceType"] for row in one["resourceTypes"]}
    assert {"westeurope", "eastus", "japaneast"} <= {row["name"] for row in regions}
    assert refusal(await inside.arm.get(f"{HERE}/providers/Contoso.Things"))[0] == 404


async def test_an_image_is_found_as_az_looks_for_it(inside: Inside) -> None:
    publishers = [row["name"] for row in (await inside.arm.get(IMAGES)).json()]
    (latest,) = (await inside.arm.get(UBUNTU, params={"$top": "1"})).json()
    image = (await inside.arm.get(f"{UBUNTU}/{latest['name']}")).json()

    assert "Canonical" in publishers
    assert image["properties"]["osDiskImage"]["operatingSystem"] == "Linux"
    assert (
        await inside.arm.get(f"{IMAGES}/Nobody/artifacttypes/vmimage/offers")
    ).status_code == 404


def _by_az(mode: str) -> list[dict[str, Any]]:
    """Return the resources in the template of `az vmss create`, as far as they matter here."""
    balancer = {
        "type": "Microsoft.Network/loadBalancers",
        "apiVersion": "2022-01-01",
        "name": "rkLB",
        "location": "eastus",
        "sku": {"name": "Standard"},
        "properties": {"backendAddressPools": [{"name": "pool"}]},
    }
    subnet = "[resourceId('Microsoft.Network/virtualNetworks/subnets', 'network', 'nodes')]"
    card = {
        "name": "nic",
        "properties": {
            "primary": "true",
            "ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": subnet}}}],
        },
    }
    image = {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server"}
    profile = {
        "storageProfile": {"imageReference": image, "osDisk": {"createOption": "FromImage"}},
        "osProfile": {"computerNamePrefix": "rk", "adminUsername": "azureuser"},
        "networkProfile": {
            "networkApiVersion": "2020-11-01",
            "networkInterfaceConfigurations": [card],
        },
    }
    of_mode: dict[str, Any] = {"platformFaultDomainCount": 1, "singlePlacementGroup": "False"}
    if mode == "Uniform":
        of_mode = {"overprovision": "True", "upgradePolicy": {"mode": "manual"}}
    made = {
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "apiVersion": "2023-09-01",
        "name": "rk",
        "location": "eastus",
        "dependsOn": [
            "Microsoft.Network/virtualNetworks/network",
            "[resourceId('Microsoft.Network/loadBalancers', 'rkLB')]",
        ],
        "sku": {"name": "Standard_DS1_v2", "capacity": 2},
        "properties": {"orchestrationMode": mode, "virtualMachineProfile": profile, **of_mode},
    }
    nodes = [{"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/24"}}]
    space = {"addressPrefixes": ["10.0.0.0/16"]}
    return [network(properties={"addressSpace": space, "subnets": nodes}), balancer, made]


@pytest.mark.parametrize("mode", ["Uniform", "Flexible"])
async def test_what_az_vmss_create_deploys_comes_up(inside: Inside, mode: str) -> None:
    told = (
        "[reference(resourceId('Microsoft.Compute/virtualMachineScaleSets', 'rk'), "
        "providers('Microsoft.Compute', 'virtualMachineScaleSets').apiVersions[0])]"
    )
    outputs = {"VMSS": {"type": "object", "value": told}}

    shown = await deploy(inside, template(*_by_az(mode), outputs=outputs))

    assert shown["provisioningState"] == "Succeeded", shown
    assert shown["outputs"]["vmss"]["value"]["orchestrationMode"] == mode
    rows = (await inside.arm.get(f"{SETS}/rk/virtualMachines")).json()["value"]
    one = await inside.arm.get(f"{SETS}/rk/virtualMachines/{rows[0]['instanceId']}")
    assert (len(rows), one.status_code) == (2, 200)


async def test_a_flexible_scale_set_may_know_nothing_of_its_vms(inside: Inside) -> None:
    bare = {"orchestrationMode": "Flexible", "platformFaultDomainCount": "1"}
    body = {"location": "eastus", "properties": bare | {"platformFaultDomainCount": 1}}
    made = await inside.arm.put(f"{SETS}/rk", json=body)

    assert made.status_code == 201
    assert "sku" not in made.json()


async def test_common_sizes_are_sold_in_every_region(inside: Inside) -> None:
    place = "location eq 'japaneast'"
    url = f"{HERE}/providers/Microsoft.Compute/skus"
    rows = (await inside.arm.get(url, params={"$filter": place})).json()["value"]

    names = {row["name"] for row in rows}
    assert {"Standard_D4s_v5", "Standard_E4s_v5", "Standard_F4s_v2"} <= names
    assert {"Standard_NC4as_T4_v3", "Standard_ND96isr_H200_v5"} <= names
