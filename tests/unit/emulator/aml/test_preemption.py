"""What Azure ML does with jobs whose nodes are taken away, as the admin routes ask for it."""

from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulated.azureml import CLUSTER, JOBS, OLD, counts, make_workspace, status, submit
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP

HISTORY = f"/history/v1.0{JOBS.removesuffix('/jobs')}"


async def order(inside: Inside, what: str, **body: Any) -> int:  # noqa: ANN401 - JSON
    """POST /_emulator/azureml/...; the status of the answer."""
    answer = await inside.metadata.post(f"/_emulator/azureml/{what}", json=body)
    return answer.status_code


async def running(inside: Inside, nodes: int = 2) -> None:
    """Make a workspace in which the job `a` runs."""
    await make_workspace(inside, nodes)
    await submit(inside, "a", nodes=nodes)
    await inside.pass_time(15)
    assert await status(inside, "a") == "Running"


async def listed(inside: Inside) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = (
        await inside.arm.post(f"{CLUSTER}/listNodes", params=OLD)
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
        lost = [n for n in await listed(inside) if n["nodeState"] == "preempted"]
        seen = []
        for _ in range(12):
            seen.append(await status(inside, "a"))
            await inside.pass_time(1)
        after = await listed(inside)
        told = (await inside.arm.get(f"{HISTORY}/runs/a/details")).json()["warnings"]

    assert [warning["source"] for warning in told] == ["AzureMLCompute"]
    assert len(lost) == 1
    assert lost[0]["nodeId"] in before
    assert list(dict.fromkeys(seen)) == ["Queued", "Starting", "Running"]
    assert [(n["nodeState"], n["runId"]) for n in after] == [("running", "a")] * 2
    assert lost[0]["nodeId"] not in {n["nodeId"] for n in after}


@pytest.mark.parametrize(
    ("then", "end", "error"), [("cancel", "Canceled", ""), ("fail", "Failed", "PreemptionError")]
)
async def test_an_evicted_job_can_end(inside: Inside, then: str, end: str, error: str) -> None:
    await running(inside)
    assert await order(inside, "preempt", job="a", then=then) == 200
    await inside.pass_time(5)
    assert (await status(inside, "a"), await counts(inside)) == (end, {})
    details = (await inside.arm.get(f"{HISTORY}/runs/a/details")).json()

    assert error in str(details["error"])
    assert bool(details["error"]) is bool(error)


async def test_a_job_that_is_not_heard_of_comes_back(inside: Inside) -> None:
    await running(inside)
    assert await order(inside, "silence", job="a", seconds=60) == 200
    await inside.pass_time(50)
    assert (await status(inside, "a"), await counts(inside)) == ("NotResponding", {"running": 2})
    await inside.pass_time(12)
    assert await status(inside, "a") == "Running"


async def test_a_job_that_is_not_heard_of_can_be_cancelled(inside: Inside) -> None:
    await running(inside)
    await order(inside, "silence", job="a", seconds=6000)
    await inside.arm.post(f"{JOBS}/a/cancel", params=OLD)
    await inside.pass_time(2)
    assert await status(inside, "a") == "Canceled"


async def test_scarcity_of_spot_machines_preempts_jobs_too(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), notice_seconds=1) as inside:
        await running(inside)
        entry = {"region": "eastus", "kind": "constant", "capacity": 0}
        await inside.metadata.post("/_emulator/spotCapacity", json=entry)
        await inside.pass_time(60)
        assert (await status(inside, "a"), await counts(inside)) == ("Queued", {"preempted": 2})
        await inside.metadata.post("/_emulator/spotCapacity", json=entry | {"capacity": 9})
        await inside.pass_time(90)
        assert (await status(inside, "a"), await counts(inside)) == ("Running", {"running": 2})


async def test_a_job_has_low_priority_nodes_for_a_week(inside: Inside) -> None:
    await running(inside)
    await inside.pass_time(6 * 86400, step=86400)
    resources, key = inside.fabric.state.resources, f"{JOBS}/a".lower()  # tokens have run out
    assert resources[key].body["properties"]["status"] == "Running"
    await inside.pass_time(86400, step=43200)
    await inside.pass_time(2)
    assert resources[key].body["properties"]["status"] == "Canceled"


async def test_nodes_are_on_the_bill_of_their_workspace_until_they_are_evicted(
    tmp_path: Path,
) -> None:
    async with emulator_inside(tmp_path, Clock(), cost_delay_seconds=0) as inside:
        await running(inside)
        tagged = (await inside.arm.get(CLUSTER, params=OLD)).json() | {"tags": {"job": "j-1"}}
        (await inside.arm.put(CLUSTER, json=tagged, params=OLD)).raise_for_status()
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
    answer = await inside.arm.post(path, json=query, params={"api-version": "2023-11-01"})
    rows: list[list[Any]] = answer.json()["properties"]["rows"]
    return rows
