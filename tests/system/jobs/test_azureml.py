"""The whole product on clusters of an Azure ML workspace, preempted in every way that there is."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from azure.identity import ClientSecretCredential

from contract.choices import Engine
from rekindle.local import faults
from rekindle.local.faults import StackInfo
from rekindle.local.layout import CLIENT, RESOURCE_GROUP, SUBSCRIPTION, TENANT, WORKSPACE
from service.cloud.azureml import job as azureml_job
from tests import waiting
from tests.system.conftest import opened
from tests.system.product import Product

pytestmark = pytest.mark.filterwarnings("ignore")  # azure-ai-ml and what it imports
EPOCHS = 6
_OVER = {"Completed", "Failed", "Canceled"}
Eviction = Callable[[StackInfo, str], Awaitable[object]]


def workspace(stack: StackInfo) -> Any:  # noqa: ANN401 - MLClient
    """Return the real Azure ML client, signed in as a principal with every permission."""
    credential = ClientSecretCredential(
        TENANT,
        CLIENT,
        "any",
        authority=stack.arm_url,
        disable_instance_discovery=True,
        connection_verify=stack.ca,
    )
    names = (SUBSCRIPTION, RESOURCE_GROUP, WORKSPACE)
    return azureml_job.client(credential, names, stack.arm_url, stack.ca)


async def take_one(stack: StackInfo, attempt_id: str) -> None:
    """Azure takes one node; the job waits for another under its name."""
    await faults.preempt_nodes(stack, attempt_id, nodes=1)


async def take_all(stack: StackInfo, attempt_id: str) -> None:
    """Azure takes every node."""
    await faults.preempt_nodes(stack, attempt_id)


async def fail(stack: StackInfo, attempt_id: str) -> None:
    """Azure takes one node, and the job ends Failed, with a PreemptionError."""
    await faults.preempt_nodes(stack, attempt_id, nodes=1, then="fail")


async def evict(product: Product, job_id: str, happens: Eviction) -> None:
    """Let the job save something of its own, and have it evicted.

    What Azure ML starts again soon enough goes on in the same attempt; else there is a next one.
    """
    before_eviction = await product.get(f"/fine_tuning/jobs/{job_id}")
    before = before_eviction["latest_checkpoint"]
    evictions = before_eviction["attempts"]["evictions"]

    def has_saved(job: dict[str, Any]) -> bool:
        assert job["finished_at"] is None, job["error"]
        return job["phase"] == "training" and job["latest_checkpoint"] not in (None, before)

    job = await product.until(job_id, has_saved)
    await happens(product.stack, job["attempts"]["current"])
    await product.until(job_id, lambda j: j["attempts"]["evictions"] > evictions)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_job_evicted_in_three_ways_ends_like_its_twin(tmp_path: Path) -> None:
    async with opened(tmp_path, Engine.AZUREML) as product:
        job_id = await product.submit(EPOCHS)
        for happens in (take_one, take_all, fail):
            await evict(product, job_id, happens)
        finished = await product.finished(job_id)
        twin = await product.finished(await product.submit(EPOCHS))
        tried = await product.attempts(job_id)
        client = workspace(product.stack)
        await waiting.until(
            lambda: asyncio.to_thread(lambda: list(client.compute.list())),
            lambda remaining: not remaining,
        )
        jobs = await asyncio.to_thread(lambda: [job.status.value for job in client.jobs.list()])
        machines = await faults.list_machines(product.stack)

    assert [finished["status"], twin["status"]] == ["succeeded", "succeeded"]
    assert finished["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
    assert finished["attempts"]["evictions"] == 3
    assert {a["outcome"] for a in tried[:-1]} == {"evicted"}
    assert tried[-1]["outcome"] == "succeeded"
    assert {a["engine"] for a in tried} == {"azureml"}
    assert len(jobs) == len(tried) + 1
    assert set(jobs) <= _OVER
    assert machines == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_job_without_a_scale_set_finishes_in_the_workspace(tmp_path: Path) -> None:
    async with opened(tmp_path, *Engine) as product:
        sets = {"nodes": 2, "engine": Engine.SCALE_SET}
        twin = await product.finished(await product.submit(2, infrastructure=sets))
        hidden = "/virtualMachineScaleSets/.*-[0-9a-f]{8}$"  # behind clusters, first in the plan
        fault = await faults.arm_fault(product.stack, "allocation_failed", path=hidden)
        job_id = await product.submit(2)
        await product.until(job_id, lambda job: job["phase"] == "training")
        await faults.clear_faults(product.stack, fault)
        job = await product.until(job_id, lambda job: job["latest_checkpoint"] is not None)
        path = f"/resourceGroups/{RESOURCE_GROUP}/providers/Microsoft.Compute/"
        await faults.arm_fault(product.stack, "allocation_failed", path=path)
        await faults.evict_attempt(product.stack, job["attempts"]["current"], notice=False)
        finished = await product.finished(job_id)
        tried = await product.attempts(job_id)
        attempts = await product.attempts(twin["id"])
        machines = await waiting.until(
            lambda: faults.list_machines(product.stack), lambda remaining: not remaining
        )

    assert [finished["status"], twin["status"]] == ["succeeded", "succeeded"]
    assert finished["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
    assert [a["engine"] for a in attempts] == ["scale_set"]
    assert [a["engine"] for a in tried if a["outcome"] in ("evicted", "succeeded")] == [
        "scale_set",
        "azureml",
    ]
    assert finished["attempts"]["evictions"] == 1
    assert all(Decimal(a["cost"]) > 0 for a in (tried[0], tried[-1]))
    assert machines == []
