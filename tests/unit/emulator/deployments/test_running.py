"""Deployments on their way: order, failures, restarts, and spoilt templates."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.clock import Clock
from tests.emulated.inside import GROUP_ID, Inside, emulator_inside
from tests.emulated.process import scale_set
from tests.unit.emulator.deployments.deployed import (
    DEPLOYMENTS,
    Json,
    account,
    body,
    deploy,
    finished,
    network,
    template,
)

ACCOUNTS = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts"


def slow(name: str = "rk-1", **members: Json) -> dict[str, Json]:
    """Return a scale set whose deployment takes some time."""
    plain = {
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "apiVersion": "2024-07-01",
        "name": name,
    }
    return {**plain, **scale_set(1), **members}


async def test_what_refers_to_a_resource_waits_for_it_unasked(inside: Inside) -> None:
    early = account("early", tags={"of": "[reference('network').provisioningState]"})

    deployment = await deploy(inside, template(early, network()))
    rows = (await inside.arm.get(f"{DEPLOYMENTS}/d/operations")).json()["value"]

    order = [row["properties"]["targetResource"]["resourceName"] for row in rows]
    assert (deployment["provisioningState"], order) == ("Succeeded", ["network", "early"])
    assert (await inside.arm.get(f"{ACCOUNTS}/early")).json()["tags"] == {"of": "Succeeded"}


async def test_resources_that_refer_to_each_other_never_come(inside: Inside) -> None:
    one = account("one", tags={"of": "[reference('two').primaryLocation]"})
    two = account("two", tags={"of": "[reference('one').primaryLocation]"})

    deployment = await deploy(inside, template(one, two))

    [detail] = deployment["error"]["details"]
    assert "Circular dependency detected on resource" in detail["message"]


async def test_a_throttled_deployment_asks_again(inside: Inside) -> None:
    for method, path in (("PUT", "storageAccounts"), ("GET", "operations/")):
        fault = {"kind": "throttle", "method": method, "path": path, "count": 2}
        (await inside.metadata.post("/_emulator/faults", json=fault)).raise_for_status()
    deployment = await deploy(inside, template(account(), slow()))
    faults = (await inside.metadata.get("/_emulator/faults")).json()["value"]

    assert deployment["provisioningState"] == "Succeeded"
    assert [fault["struck"] for fault in faults] == [2, 2]


async def test_a_failure_stops_what_waits_for_it_and_nothing_else(inside: Inside) -> None:
    capacity = {"region": "eastus", "vm_size": "Standard_ND96amsr_A100_v4", "available": 0}
    await inside.metadata.post("/_emulator/capacity", json=capacity)
    waits, free = account("waits", dependsOn=["rk-1"]), account("free")

    deployment = await deploy(inside, template(waits, slow(), free))

    assert deployment["provisioningState"] == "Failed"
    [detail] = deployment["error"]["details"]
    assert (deployment["error"]["code"], detail["code"]) == ("DeploymentFailed", "AllocationFailed")
    assert detail["target"].endswith("/rk-1")
    codes = [(await inside.arm.get(f"{ACCOUNTS}/{n}")).status_code for n in ("waits", "free")]
    assert codes == [404, 200]


async def test_a_deployment_survives_a_restart_of_the_emulator(tmp_path: Path) -> None:
    clock = Clock()
    template_body = template(slow(), account("after", dependsOn=["rk-1"]))
    async with emulator_inside(tmp_path, clock) as before:
        await before.arm.put(f"{DEPLOYMENTS}/d", json=body(template_body))
        await before.pass_time(0.5)
    async with emulator_inside(tmp_path, clock) as after:
        deployment = await finished(after)
        response = await after.arm.get(f"{ACCOUNTS}/after")

    assert (deployment["provisioningState"], response.status_code) == ("Succeeded", 200)


async def test_one_that_runs_takes_no_changes(inside: Inside) -> None:
    url = f"{DEPLOYMENTS}/d"
    await inside.arm.put(url, json=body(template(slow())))
    refused = await inside.arm.put(url, json=body(template()))

    assert refused.json()["error"]["code"] == "DeploymentActive"


async def test_those_of_a_group_can_be_listed(inside: Inside) -> None:
    await deploy(inside, template(account()), name="one")
    listed = (await inside.arm.get(f"{DEPLOYMENTS}/")).json()["value"]
    codes = [(await inside.arm.head(f"{DEPLOYMENTS}/{n}")).status_code for n in ("one", "two")]
    missing = await inside.arm.get(f"{DEPLOYMENTS}/two")

    assert [row["name"] for row in listed] == ["one"]
    assert codes == [204, 404]
    assert missing.json()["error"]["code"] == "DeploymentNotFound"


TEMPLATE = json.loads((Path(__file__).parents[4] / "infra" / "main.json").read_text())
JUNK: list[Json] = [
    *(None, 1, -1, True, "", [], {}, [1], {"a": 1}, 1e300),
    *("[", "[x", "[parameters(1)]", "[resourceId()]", "[concat(1)]", "[reference()]"),
    *("[copyIndex(null())]", "[listKeys()]", "[range(0, 5)]", "[format('{9}')]"),
]


async def test_a_template_with_any_member_spoilt_is_answered(tmp_path: Path) -> None:
    draw = random.Random(4)
    passed = {"sshPublicKey": "k", "databasePassword": "Horse-battery-1", "secretKey": "x" * 40}
    document = body(TEMPLATE, **passed)
    paths = [path for path in _places(document) if path]
    async with emulator_inside(tmp_path, Clock()) as azure:
        for _ in range(100):
            spoilt = _spoilt(document, draw.choice(paths), draw)
            response = await azure.arm.post(f"{DEPLOYMENTS}/d/validate", json=spoilt)
            assert response.status_code in (200, 400), response.text


def _places(value: Json, path: tuple[Json, ...] = ()) -> Iterator[tuple[Json, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in inner:
        if isinstance(member, dict | list):
            yield from _places(member, (*path, key))
        else:
            yield (*path, key)


def _spoilt(document: Json, path: tuple[Json, ...], draw: random.Random) -> Json:
    spoilt = copy.deepcopy(document)
    target = spoilt
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = draw.choice(JUNK)
    return spoilt
