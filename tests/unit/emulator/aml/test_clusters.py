"""Clusters of Azure ML nodes on a moved clock, and what evictions make of their jobs."""

from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulated import azureml as ml
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP

SETS = f"{HERE}/providers/Microsoft.Compute/virtualMachineScaleSets"
USAGES = f"{HERE}/providers/Microsoft.Compute/locations/eastus/usages"


async def read_cluster(inside: Inside) -> dict[str, Any]:
    body: dict[str, Any] = (await inside.arm.get(ml.CLUSTER, params=ml.OLD)).json()["properties"]
    return body


async def job_and_nodes(inside: Inside) -> tuple[str, dict[str, int]]:
    return await ml.status(inside, "a"), await ml.counts(inside)


async def test_nodes_come_for_a_job_and_go_when_they_were_idle_for_long(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=3) as inside:
        await ml.make_workspace(inside, 2, idle="PT1M")
        await ml.submit(inside, "a", nodes=2)
        await inside.pass_time(4)
        assert await ml.counts(inside) == {"preparing": 2}
        assert (await read_cluster(inside))["properties"]["allocationState"] == "Resizing"
        await inside.pass_time(5)
        assert await ml.counts(inside) == {"running": 2}
        await inside.arm.post(f"{ml.WORKSPACE}/jobs/a/cancel", params=ml.OLD)
        await inside.pass_time(2)
        assert await ml.counts(inside) == {"idle": 2}
        await inside.pass_time(55)
        assert await ml.counts(inside) == {"idle": 2}
        await inside.pass_time(10)
        assert await ml.counts(inside) == {}


async def test_a_minimum_of_nodes_stays_and_is_replaced_after_an_eviction(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=3, notice_seconds=30) as inside:
        await ml.make_workspace(inside, 3, least=2, idle="PT1S")
        await inside.pass_time(120)
        assert await ml.counts(inside) == {"idle": 2}
        await ml.evict(inside, "0", notice=True)
        await inside.pass_time(1)
        assert await ml.counts(inside) == {"idle": 1, "preempted": 1}
        await inside.pass_time(40)
        assert await ml.counts(inside) == {"idle": 2}
        nodes = (await inside.arm.post(f"{ml.CLUSTER}/listNodes", params=ml.OLD)).json()["nodes"]

    assert [node["nodeState"] for node in nodes] == ["idle", "idle"]
    assert all(node["nodeId"].endswith("_p") and node["privateIpAddress"] for node in nodes)


async def test_a_cluster_beyond_the_quota_says_so_and_goes_on_trying(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=3, azureml_quota=100) as inside:
        await ml.make_workspace(inside, 2)
        await ml.submit(inside, "a", nodes=2)
        await inside.pass_time(30)
        errors = (await read_cluster(inside))["properties"]["errors"]
        assert [e["error"]["code"] for e in errors] == ["ClusterCoreQuotaReached"]
        assert await ml.status(inside, "a") == "Queued"
        usage = await inside.arm.get(
            f"{HERE}/providers/Microsoft.MachineLearningServices/locations/eastus/usages",
            params=ml.OLD,
        )

    assert (usage.json()["value"][0]["currentValue"], usage.json()["value"][0]["limit"]) == (0, 100)


async def test_nodes_that_find_no_room_are_tried_again(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=3) as inside:
        room = {"region": "eastus", "vm_size": "Standard_ND96amsr_A100_v4", "available": 0}
        await inside.metadata.post("/_emulator/capacity", json=room)
        await ml.make_workspace(inside, 2)
        await ml.submit(inside, "a")
        await inside.pass_time(20)
        errors = (await read_cluster(inside))["properties"]["errors"]
        assert [e["error"]["code"] for e in errors] == ["AllocationFailed"]
        await inside.metadata.post("/_emulator/capacity", json=room | {"available": None})
        await inside.pass_time(80)
        assert await ml.counts(inside) == {"running": 1}
        assert (await read_cluster(inside))["properties"]["errors"] is None


async def test_nobody_sees_the_scale_set_behind_a_cluster(inside: Inside) -> None:
    await ml.make_workspace(inside, 1, least=1)
    await inside.pass_time(10)
    machines = (await inside.metadata.get("/_emulator/virtualMachines")).json()["value"]
    listed = (await inside.arm.get(SETS)).json()["value"]
    everything = (await inside.arm.get(f"{HERE}/resources")).json()["value"]
    usages = (await inside.arm.get(USAGES)).json()["value"]
    used = {row["name"]["value"]: row["currentValue"] for row in usages}

    assert [vm["state"] for vm in machines] == ["running"]
    assert listed == []
    assert [row["type"].rpartition("/")[2] for row in everything] == ["workspaces"]
    assert (used["virtualMachineScaleSets"], used["lowPriorityCores"]) == (0, 0)


async def test_nodes_end_with_the_workspace_that_had_them(inside: Inside) -> None:
    await ml.make_workspace(inside, 1, least=1)
    await inside.pass_time(10)
    deletion = await inside.arm.delete(ml.WORKSPACE, params=ml.OLD)
    assert deletion.status_code == 202
    waiting = await inside.follow(deletion.headers["Location"])
    workspace = (await inside.arm.get(ml.WORKSPACE, params=ml.OLD)).json()["properties"]
    refused = [
        (await inside.arm.put(path, json=ml.cluster(), params=ml.OLD)).status_code
        for path in (ml.WORKSPACE, ml.CLUSTER)
    ]
    await removed_after_its_nodes(inside, ml.WORKSPACE)
    polled = await inside.follow(deletion.headers["Azure-AsyncOperation"])
    finished = await inside.follow(deletion.headers["Location"])
    listed = (await inside.arm.get(ml.WORKSPACES, params=ml.OLD)).json()["value"]

    assert (waiting.status_code, workspace["provisioningState"]) == (202, "Deleting")
    assert (refused, listed, finished.status_code) == ([409, 409], [], 204)
    assert polled.json()["status"] == "Succeeded"


async def test_a_deletion_ends_though_the_group_went_before_it(inside: Inside) -> None:
    await ml.make_workspace(inside, 1, least=1)
    await inside.pass_time(10)
    (await inside.arm.delete(f"{HERE}/resourceGroups/{GROUP}")).raise_for_status()
    deletion = await inside.arm.delete(ml.CLUSTER, params=ml.REMOVAL)
    await inside.pass_time(10)
    polled = await inside.follow(deletion.headers["Azure-AsyncOperation"])

    assert polled.json()["status"] == "Succeeded"


async def removed_after_its_nodes(inside: Inside, path: str) -> None:
    """Wait until ``path`` is not found; no moment before that it may be gone and a node not."""
    while (await inside.arm.get(path, params=ml.OLD)).status_code == 200:
        await inside.pass_time(1)
    assert (await inside.metadata.get("/_emulator/virtualMachines")).json()["value"] == []


async def test_a_node_that_is_let_go_is_given_to_no_job(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), delete_seconds=30) as inside:
        await ml.make_workspace(inside, 1, idle="PT10S")
        await ml.submit(inside, "a")
        await inside.pass_time(15)
        await inside.arm.post(f"{ml.WORKSPACE}/jobs/a/cancel", params=ml.OLD)
        await inside.pass_time(14)
        assert await ml.counts(inside) == {"leaving": 1}
        await ml.submit(inside, "b")
        await inside.pass_time(60)
        nodes = (await inside.arm.post(f"{ml.CLUSTER}/listNodes", params=ml.OLD)).json()["nodes"]
        run = f"/history/v1.0{ml.WORKSPACE}/runs/b/details"
        assert (await inside.arm.get(run)).json()["warnings"] == []

    assert [(node["nodeState"], node["runId"]) for node in nodes] == [("running", "b")]


async def test_only_the_scale_of_a_cluster_can_change(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    refused = await inside.arm.put(
        ml.CLUSTER, json=ml.cluster(vmPriority="Dedicated"), params=ml.OLD
    )
    scaled = await inside.arm.put(ml.CLUSTER, json=ml.cluster(4), params=ml.OLD)
    settings = {"properties": {"properties": {"scaleSettings": {"maxNodeCount": 5}}}}
    patched = await inside.arm.patch(ml.CLUSTER, json=settings, params=ml.OLD)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "UserError")
    assert scaled.json()["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 4
    assert patched.json()["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 5


async def test_a_cluster_needs_a_quota_for_a_node_of_azure_ml_alone(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), azureml_quota=95, spot_quota=0) as inside:
        await inside.arm.put(ml.WORKSPACE, json={"location": "eastus"}, params=ml.OLD)
        refused = (await inside.arm.put(ml.CLUSTER, json=ml.cluster(), params=ml.OLD)).json()[
            "error"
        ]

    assert refused["code"] == "ClusterMinNodesExceedCoreQuota"
    assert "total vCPU quota of 95" in refused["message"]


async def test_a_name_is_given_once_in_a_region(inside: Inside) -> None:
    await ml.make_workspace(inside)
    other_workspace = f"{ml.WORKSPACE}-2"
    await inside.arm.put(other_workspace, json={"location": "eastus"}, params=ml.OLD)
    refused = await inside.arm.put(
        f"{other_workspace}/computes/SPOT", json=ml.cluster(), params=ml.OLD
    )

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "UserError")


HISTORY = f"/history/v1.0{ml.JOBS.removesuffix('/jobs')}"


async def order(inside: Inside, action: str, **body: Any) -> int:  # noqa: ANN401 - JSON
    """POST /_emulator/azureml/...; the status of the answer."""
    response = await inside.metadata.post(f"/_emulator/azureml/{action}", json=body)
    return response.status_code


async def running(inside: Inside, nodes: int = 2) -> None:
    """Make a workspace in which the job `a` runs."""
    await ml.make_workspace(inside, nodes)
    await ml.submit(inside, "a", nodes=nodes)
    await inside.pass_time(15)
    assert await ml.status(inside, "a") == "Running"


async def listed(inside: Inside) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = (
        await inside.arm.post(f"{ml.CLUSTER}/listNodes", params=ml.OLD)
    ).json()["nodes"]
    return nodes


async def test_a_job_that_lost_one_node_queues_and_starts_again_under_its_name(
    tmp_path: Path,
) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=5) as inside:
        await running(inside)
        before = {node["nodeId"] for node in await listed(inside)}
        assert await order(inside, "preempt", job="a", nodes=1) == 200
        await inside.pass_time(1)
        evicted = [n for n in await listed(inside) if n["nodeState"] == "preempted"]
        statuses = []
        for _ in range(12):
            statuses.append(await ml.status(inside, "a"))
            await inside.pass_time(1)
        after = await listed(inside)
        warnings = (await inside.arm.get(f"{HISTORY}/runs/a/details")).json()["warnings"]

    assert [warning["source"] for warning in warnings] == ["AzureMLCompute"]
    assert len(evicted) == 1
    assert evicted[0]["nodeId"] in before
    assert list(dict.fromkeys(statuses)) == ["Queued", "Starting", "Running"]
    assert [(n["nodeState"], n["runId"]) for n in after] == [("running", "a")] * 2
    assert evicted[0]["nodeId"] not in {n["nodeId"] for n in after}


@pytest.mark.parametrize(
    ("then", "end", "error"), [("cancel", "Canceled", ""), ("fail", "Failed", "PreemptionError")]
)
async def test_an_evicted_job_can_end(inside: Inside, then: str, end: str, error: str) -> None:
    await running(inside)
    assert await order(inside, "preempt", job="a", then=then) == 200
    await inside.pass_time(5)
    assert await job_and_nodes(inside) == (end, {})
    details = (await inside.arm.get(f"{HISTORY}/runs/a/details")).json()

    assert error in str(details["error"])
    assert bool(details["error"]) is bool(error)


async def test_a_job_that_is_not_heard_of_comes_back(inside: Inside) -> None:
    await running(inside)
    assert await order(inside, "silence", job="a", seconds=60) == 200
    await inside.pass_time(50)
    assert await job_and_nodes(inside) == (
        "NotResponding",
        {"running": 2},
    )
    await inside.pass_time(12)
    assert await ml.status(inside, "a") == "Running"


async def test_scarcity_of_spot_machines_preempts_jobs_too(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), notice_seconds=1) as inside:
        await running(inside)
        entry = {"region": "eastus", "kind": "constant", "capacity": 0}
        await inside.metadata.post("/_emulator/spotCapacity", json=entry)
        await inside.pass_time(60)
        assert await job_and_nodes(inside) == (
            "Queued",
            {"preempted": 2},
        )
        await inside.metadata.post("/_emulator/spotCapacity", json=entry | {"capacity": 9})
        await inside.pass_time(90)
        assert await job_and_nodes(inside) == (
            "Running",
            {"running": 2},
        )


async def test_a_job_has_low_priority_nodes_for_a_week(inside: Inside) -> None:
    await running(inside)
    await inside.pass_time(6 * 86400, step=86400)
    resources, key = inside.fabric.state.resources, f"{ml.JOBS}/a".lower()  # tokens have run out
    assert resources[key].body["properties"]["status"] == "Running"
    await inside.pass_time(86400, step=43200)
    await inside.pass_time(2)
    assert resources[key].body["properties"]["status"] == "Canceled"


async def test_nodes_are_on_the_bill_of_their_workspace_until_they_are_evicted(
    tmp_path: Path,
) -> None:
    async with emulator_inside(tmp_path, Clock(), cost_delay_seconds=0) as inside:
        await running(inside)
        tagged = (await inside.arm.get(ml.CLUSTER, params=ml.OLD)).json() | {"tags": {"job": "j-1"}}
        (await inside.arm.put(ml.CLUSTER, json=tagged, params=ml.OLD)).raise_for_status()
        await inside.pass_time(3585)
        bill = await _bill(inside)
        await inside.metadata.post(
            "/_emulator/spotCapacity", json={"region": "*", "capacity": 0} | CONSTANT
        )
        await order(inside, "preempt", job="a")
        await inside.pass_time(3600)
        later = await _bill(inside)

    ((cost, hours, resource, *_),) = bill
    assert resource.endswith("/providers/microsoft.machinelearningservices/workspaces/ws")
    assert cost > 0
    assert hours == pytest.approx(2, abs=0.01)
    assert later[0][1] == pytest.approx(hours, abs=0.01)


CONSTANT = {"kind": "constant"}


async def _bill(inside: Inside) -> list[list[Any]]:
    """Return today's cost of each resource that has the tag ``job`` with the value ``j-1``."""
    today = inside.clock().date().isoformat()
    query = {
        "type": "ActualCost",
        "timeframe": "Custom",
        "timePeriod": {"from": f"{today}T00:00:00Z", "to": f"{today}T23:59:59Z"},
        "dataset": {
            "granularity": "None",
            "aggregation": {
                "cost": {"name": "PreTaxCost", "function": "Sum"},
                "hours": {"name": "UsageQuantity", "function": "Sum"},
            },
            "grouping": [{"type": "Dimension", "name": "ResourceId"}],
            "filter": {"tags": {"name": "job", "operator": "In", "values": ["j-1"]}},
        },
    }
    path = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.CostManagement/query"
    response = await inside.arm.post(path, json=query, params={"api-version": "2023-11-01"})
    rows: list[list[Any]] = response.json()["properties"]["rows"]
    return rows
