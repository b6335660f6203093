"""What Azure's answers have beyond what the client wrote, and mixes of VM sizes."""

from typing import Any

from tests.emulated.inside import PROVIDERS, SETS, Inside
from tests.emulated.process import scale_set

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
    asked = {
        "first": mix(*ranked(0, 1)),
        "second": mix(*ranked(1, 0)),
        "cheapest": mix(*bare, strategy=None),
        "any": mix(*bare, strategy="CapacityOptimized"),
    }
    for name, body in asked.items():
        answer = await inside.arm.put(f"{SETS}/{name}", json=body)
        assert answer.status_code == 201, answer.text
        shown = (await inside.arm.get(f"{SETS}/{name}")).json()
        assert (shown["sku"], shown["properties"]["skuProfile"]) == (
            {"name": "Mix", "capacity": 1},
            body["properties"]["skuProfile"],
        )
    taken = [await size_of(inside, name) for name in asked]

    assert taken == [SIZES[0], SIZES[1], SIZES[1], SIZES[0]]


async def test_a_mix_passes_over_a_size_that_is_barred(inside: Inside) -> None:
    barred = {"vm_size": SIZES[0], "region": "eastus", "reason": "NotAvailableForSubscription"}
    (await inside.metadata.post("/_emulator/market/restrictions", json=barred)).raise_for_status()
    (await inside.arm.put(f"{SETS}/rk", json=mix(*ranked(0, 1)))).raise_for_status()

    assert await size_of(inside, "rk") == SIZES[1]


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
    shown = (await inside.arm.get(f"{SETS}/rk")).json()
    one = f"{SETS}/rk/virtualMachines/0"
    machine = (await inside.arm.get(one, params={"$expand": "instanceView"})).json()["properties"]
    system, storage = machine["osProfile"], machine["storageProfile"]
    cards = machine["networkProfileConfiguration"]["networkInterfaceConfigurations"]

    assert shown["properties"]["virtualMachineProfile"]["osProfile"]["secrets"] == []
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
