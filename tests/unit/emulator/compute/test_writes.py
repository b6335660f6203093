"""What writes make of a scale set, Flexible ones and mixes of sizes too."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, PROVIDERS, SET, SETS, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with one scale set of two running VMs."""
    async with emulator_inside(tmp_path, Clock()) as running:
        (await running.arm.put(SET, json=scale_set(2))).raise_for_status()
        await running.pass_time(4)
        yield running


async def read_set(inside: Inside) -> dict[str, Any]:
    body: dict[str, Any] = (await inside.arm.get(SET)).raise_for_status().json()
    return body


async def ids(inside: Inside) -> list[str]:
    rows = (await inside.arm.get(f"{SET}/virtualMachines")).raise_for_status().json()["value"]
    return [row["instanceId"] for row in rows]


def error(response: httpx.Response) -> tuple[int, str, str | None]:
    body = response.json()["error"]
    return response.status_code, body["code"], body.get("target")


async def test_a_patch_changes_only_what_it_names(inside: Inside) -> None:
    before = await read_set(inside)
    policy = {"upgradePolicy": {"mode": "automatic"}}
    changes = {"tags": {"a": "b"}, "sku": {"capacity": 3}, "properties": policy}
    response = await inside.arm.patch(SET, json=changes)
    assert response.status_code == 200
    assert "azure-asyncoperation" in response.headers
    assert response.json()["properties"]["provisioningState"] == "Updating"
    await inside.pass_time(4)

    after = await read_set(inside)
    assert after["tags"] == {"a": "b"}
    assert after["sku"] == {**before["sku"], "capacity": 3}
    assert after["properties"] == {
        **before["properties"],
        "upgradePolicy": {"mode": "Automatic"},  # Azure's spelling, whatever came
    }
    assert await ids(inside) == ["0", "1", "2"]
    operation = (await inside.arm.get(response.headers["azure-asyncoperation"])).json()
    assert operation["status"] == "Succeeded"


async def test_a_single_placement_group_is_given_up_once_and_for_all(inside: Inside) -> None:
    given_up = {"properties": {"singlePlacementGroup": False}}
    assert (await inside.arm.patch(SET, json=given_up)).status_code == 200
    await inside.pass_time(4)
    refused = await inside.arm.patch(SET, json={"properties": {"singlePlacementGroup": True}})
    assert error(refused) == (409, "PropertyChangeNotAllowed", "singlePlacementGroup")


async def test_writes_are_held_to_the_etag(inside: Inside) -> None:
    old_etag = (await read_set(inside))["etag"]
    tags = {"tags": {"a": "b"}}
    first = await inside.arm.patch(SET, json=tags, headers={"If-Match": old_etag})
    assert first.status_code == 200
    stale = {"If-Match": old_etag}
    assert error(await inside.arm.patch(SET, json=tags, headers=stale))[0] == 412
    assert error(await inside.arm.put(SET, json=scale_set(2), headers=stale))[0] == 412
    assert error(await inside.arm.delete(SET, headers=stale))[:2] == (412, "PreconditionFailed")
    fresh = {"If-Match": (await read_set(inside))["etag"]}
    assert (await inside.arm.delete(SET, headers=fresh)).status_code == 202
    only_new = {"If-None-Match": "*"}
    body = scale_set(0)
    assert (await inside.arm.put(f"{SETS}/new", json=body, headers=only_new)).status_code == 201
    assert (await inside.arm.put(f"{SETS}/new", json=body, headers=only_new)).status_code == 412


async def test_instances_keep_the_model_that_they_were_made_from(inside: Inside) -> None:
    async def latest() -> list[bool]:
        rows = (await inside.arm.get(f"{SET}/virtualMachines")).json()["value"]
        return [row["properties"]["latestModelApplied"] for row in rows]

    data = {"properties": {"virtualMachineProfile": {"userData": "aGVsbG8="}}}
    (await inside.arm.patch(SET, json=data)).raise_for_status()
    await inside.pass_time(4)
    assert await latest() == [False, False]


PRICED = {"virtualMachineProfile": {"billingProfile": {"maxPrice": 20}}}


COMPUTE = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
FLEX = f"{COMPUTE}/virtualMachineScaleSets/flex"
VMS = f"{COMPUTE}/virtualMachines"


def flexible(count: int, **properties: object) -> dict[str, Any]:
    body = scale_set(count)
    members = {
        "orchestrationMode": "Flexible",
        "platformFaultDomainCount": 1,
        "virtualMachineProfile": body["properties"]["virtualMachineProfile"],
        **properties,
    }
    body["sku"]["name"] = "Standard_NC24ads_A100_v4"
    return {**body, "properties": {k: v for k, v in members.items() if v is not None}}


@pytest.fixture
async def flex(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with a Flexible scale set of four VMs."""
    async with emulator_inside(tmp_path, Clock()) as running:
        body = flexible(4)
        (await running.arm.put(FLEX, json=body)).raise_for_status()
        await running.pass_time(4)
        yield running


async def machines(flex: Inside) -> list[dict[str, Any]]:
    of_set = {"$filter": f"'virtualMachineScaleSet/id' eq '{FLEX}'", "$expand": "instanceView"}
    response = await flex.arm.get(VMS, params=of_set)
    rows: list[dict[str, Any]] = response.raise_for_status().json()["value"]
    return rows


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_its_instances_are_virtual_machines(flex: Inside) -> None:
    rows = await machines(flex)
    assert len({row["name"] for row in rows}) == 4
    assert all(row["name"].startswith("flex_") for row in rows)
    machine = rows[0]
    assert machine["id"] == f"{VMS}/{machine['name']}"
    assert machine["properties"]["virtualMachineScaleSet"] == {"id": FLEX}
    codes = [s["code"] for s in machine["properties"]["instanceView"]["statuses"]]
    assert codes == ["ProvisioningState/succeeded", "PowerState/running"]
    machine_body = (await flex.arm.get(f"{VMS}/{machine['name'].upper()}")).json()
    assert machine_body["properties"]["vmId"] == machine["properties"]["vmId"]
    assert code_of(await flex.arm.get(f"{VMS}/none")) == (404, "ResourceNotFound")
    everywhere = await flex.arm.get(
        f"{HERE}/providers/Microsoft.Compute/virtualMachines", params={"statusOnly": "true"}
    )
    assert len(everywhere.json()["value"]) == 4
    properties = (await flex.arm.get(FLEX)).json()["properties"]
    assert properties["singlePlacementGroup"] is False
    assert "overprovision" not in properties


async def test_a_virtual_machine_is_ordered_and_deleted_by_its_name(flex: Inside) -> None:
    machine = (await machines(flex))[0]
    assert (await flex.arm.post(f"{machine['id']}/powerOff")).status_code == 202
    await flex.pass_time(4)
    view = (await flex.arm.get(f"{machine['id']}/instanceView")).json()
    assert view["statuses"][-1]["code"] == "PowerState/stopped"
    assert (await flex.arm.delete(machine["id"])).status_code == 202
    await flex.pass_time(4)
    assert (await flex.arm.delete(machine["id"])).status_code == 204
    assert len(await machines(flex)) == 3


async def test_what_uniform_ones_answer_is_refused(flex: Inside) -> None:
    view = await flex.arm.get(f"{FLEX}/instanceView")
    assert code_of(view) == (400, "BadRequest")
    assert "'VirtualMachineScaleSets.instanceView.GET' is not allowed" in view.text
    query = {"$expand": "instanceView"}
    expanded = await flex.arm.get(f"{FLEX}/virtualMachines", params=query)
    assert code_of(expanded) == (400, "BadRequest")
    listed = (await flex.arm.get(f"{FLEX}/virtualMachines")).json()["value"]
    name = listed[0]["instanceId"]
    response = await flex.arm.get(f"{FLEX}/virtualMachines/{name}")
    assert response.json()["name"] == name  # it has its name for an id


SIZES = ("Standard_D4s_v5", "Standard_D2s_v5")


def mix(*sizes: dict[str, Any], strategy: str | None = "Prioritized") -> dict[str, Any]:
    """Return a Flexible scale set of one machine of one of these sizes."""
    profile: dict[str, Any] = {"vmSizes": list(sizes)}
    properties = {
        "orchestrationMode": "Flexible",
        "platformFaultDomainCount": 1,
        "skuProfile": profile | ({"allocationStrategy": strategy} if strategy else {}),
        "virtualMachineProfile": {"osProfile": {"adminUsername": "azureuser"}},
    }
    return {"location": "eastus", "sku": {"name": "Mix", "capacity": 1}, "properties": properties}


def ranked(*ranks: int) -> list[dict[str, Any]]:
    return [{"name": size, "rank": rank} for size, rank in zip(SIZES, ranks, strict=True)]


async def size_of(inside: Inside, name: str) -> str:
    rows = (await inside.arm.get(f"{SETS}/{name}/virtualMachines")).json()["value"]
    return str(rows[0]["properties"]["hardwareProfile"]["vmSize"])


async def test_a_mix_takes_the_size_that_its_strategy_prefers(inside: Inside) -> None:
    bare = [{"name": size} for size in SIZES]
    bodies = {
        "first": mix(*ranked(0, 1)),
        "second": mix(*ranked(1, 0)),
        "cheapest": mix(*bare, strategy=None),
        "any": mix(*bare, strategy="CapacityOptimized"),
    }
    for name, body in bodies.items():
        response = await inside.arm.put(f"{SETS}/{name}", json=body)
        assert response.status_code == 201, response.text
        scale_sets = (await inside.arm.get(f"{SETS}/{name}")).json()
        assert (scale_sets["sku"], scale_sets["properties"]["skuProfile"]) == (
            {"name": "Mix", "capacity": 1},
            body["properties"]["skuProfile"],
        )
    sizes = [await size_of(inside, name) for name in bodies]

    assert sizes == [SIZES[0], SIZES[1], SIZES[1], SIZES[0]]


async def test_a_mix_passes_over_a_size_that_is_barred(inside: Inside) -> None:
    barred = {"vm_size": SIZES[0], "region": "eastus", "reason": "NotAvailableForSubscription"}
    (await inside.metadata.post("/_emulator/market/restrictions", json=barred)).raise_for_status()
    (await inside.arm.put(f"{SETS}/rk", json=mix(*ranked(0, 1)))).raise_for_status()

    assert await size_of(inside, "rk") == SIZES[1]


async def test_a_security_group_has_the_rules_that_nobody_can_remove(inside: Inside) -> None:
    url = f"{PROVIDERS}/Microsoft.Network/networkSecurityGroups/g"
    (await inside.arm.put(url, json={"location": "eastus"})).raise_for_status()
    rules = (await inside.arm.get(url)).json()["properties"]["defaultSecurityRules"]

    assert [(r["name"], r["properties"]["priority"], r["properties"]["access"]) for r in rules] == [
        ("AllowVnetInBound", 65000, "Allow"),
        ("AllowAzureLoadBalancerInBound", 65001, "Allow"),
        ("DenyAllInBound", 65500, "Deny"),
        ("AllowVnetOutBound", 65000, "Allow"),
        ("AllowInternetOutBound", 65001, "Allow"),
        ("DenyAllOutBound", 65500, "Deny"),
    ]
    assert rules[0]["id"] == f"{url}/defaultSecurityRules/AllowVnetInBound"


async def test_a_price_limit_may_change_unless_running_vms_upgrade_by_themselves(
    inside: Inside,
) -> None:
    limit = {"properties": {"upgradePolicy": {"mode": "Automatic"}, **PRICED}}
    refused = await inside.arm.patch(SET, json=limit)
    changed = await inside.arm.patch(SET, json={"properties": PRICED})

    assert error(refused)[:2] == (409, "MaxPriceChangeNotAllowedForAllocatedVMs")
    assert "'rk-1_0'" in refused.json()["error"]["message"]
    assert changed.status_code == 200
    profile = changed.json()["properties"]["virtualMachineProfile"]
    assert profile["billingProfile"] == {"maxPrice": 20}


async def test_a_machine_is_shown_as_full_as_azure_shows_it(inside: Inside) -> None:
    body = scale_set(1)
    profile = body["properties"]["virtualMachineProfile"]
    image = {"publisher": "Canonical", "offer": "o", "sku": "s", "version": "latest"}
    profile["storageProfile"] |= {"imageReference": image, "dataDisks": [{"lun": 0}]}
    address = {"name": "ip", "properties": {"subnet": {"id": f"{PROVIDERS}/n/subnets/s"}}}
    card = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [address]}}
    profile["networkProfile"] = {"networkInterfaceConfigurations": [card]}
    profile["diagnosticsProfile"] = {"bootDiagnostics": {"enabled": True}}
    (await inside.arm.put(f"{SETS}/rk", json=body)).raise_for_status()
    await inside.pass_time(4)
    scale_set_body = (await inside.arm.get(f"{SETS}/rk")).json()
    scale_set_system = scale_set_body["properties"]["virtualMachineProfile"]["osProfile"]
    url = f"{SETS}/rk/virtualMachines/0"
    machine = (await inside.arm.get(url, params={"$expand": "instanceView"})).json()["properties"]
    system, storage = machine["osProfile"], machine["storageProfile"]
    cards = machine["networkProfileConfiguration"]["networkInterfaceConfigurations"]

    assert scale_set_system["secrets"] == []
    assert system["linuxConfiguration"]["provisionVMAgent"] is True
    assert cards[0]["properties"]["dnsSettings"] == {"dnsServers": []}
    assert cards[0]["properties"]["ipConfigurations"][0]["properties"] == {
        "privateIPAddressVersion": "IPv4",
        "subnet": address["properties"]["subnet"],  # type: ignore[index] # a dict
    }
    disk = storage["osDisk"]
    assert (disk["osType"], storage["imageReference"]["exactVersion"]) == ("Linux", "1.0.0")
    assert disk["managedDisk"]["id"].endswith(f"/Microsoft.Compute/disks/{disk['name']}")
    view = machine["instanceView"]
    names = [disk["name"], storage["dataDisks"][0]["name"]]
    assert [row["name"] for row in view["disks"]] == names
    assert (view["computerName"], view["bootDiagnostics"]) == (system["computerName"], {})
    assert view["vmAgent"]["statuses"][0]["displayStatus"] == "Ready"
    assert not {"adminPassword", "customData"} & (system.keys() | scale_set_system.keys())


async def test_user_data_is_shown_to_who_asks_for_it(inside: Inside) -> None:
    data = {"properties": {"virtualMachineProfile": {"userData": "aGVsbG8="}}}
    (await inside.arm.patch(SET, json=data)).raise_for_status()
    assert "userData" not in str(await read_set(inside))
    body = (await inside.arm.get(SET, params={"$expand": "userData"})).json()
    assert body["properties"]["virtualMachineProfile"]["userData"] == "aGVsbG8="
    of_vm = await inside.arm.get(f"{SET}/virtualMachines/0", params={"$expand": "userData"})
    assert of_vm.json()["properties"]["userData"] == "aGVsbG8="


async def test_a_flexible_scale_set_may_know_nothing_of_its_vms(inside: Inside) -> None:
    bare = {"orchestrationMode": "Flexible", "platformFaultDomainCount": "1"}
    body = {"location": "eastus", "properties": bare | {"platformFaultDomainCount": 1}}
    response = await inside.arm.put(f"{SETS}/rk", json=body)

    assert response.status_code == 201
    assert "sku" not in response.json()
