"""The whole product while Azure, the database and the service itself fail under a job.

Azure refuses at once and refuses late, throttles, breaks, forgets to answer, cannot delete;
the service dies while machines are being made and while they are being deleted; PostgreSQL is
killed while the job trains. The job ends like one to which none of it happened.
"""

import re

import pytest

from rekindle.local import faults
from rekindle.local.running_stack import StackInfo
from tests import waiting
from tests.system.product import Product


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_job_survives_everything_that_azure_and_its_own_service_do_to_it(
    product: Product,
) -> None:
    stack = product.stack
    await faults.arm_fault(stack, "quota", count=1)
    await faults.arm_fault(stack, "allocation_failed", count=1, delay=4)
    job_id = await product.submit(epochs=2)
    await product.until(job_id, lambda j: j["attempts"]["count"] == 2)
    await _throttle_and_break(stack)
    await _kill_the_service_while_machines_are_made(product, job_id)
    await product.until(job_id, lambda j: j["phase"] == "training")
    before = await faults.kill_part(stack, "postgres")
    await faults.wait_for_restart(stack, "postgres", before)
    await faults.arm_fault(stack, "delete_fails", count=2)
    await faults.arm_fault(stack, "drop", when="after", method="DELETE", count=1)
    await product.finished(job_id)
    await faults.kill_part(stack, "service")  # its machines are being deleted
    finished = await product.until(job_id, lambda j: j["cost"]["final"])
    tried = await product.attempts(job_id)
    struck = {f["kind"]: f["struck"] for f in await faults.list_faults(stack)}

    assert finished["status"] == "succeeded"
    assert [a["outcome"] for a in tried] == ["no_capacity", "no_capacity", "succeeded"]
    assert re.search(r"quota .*LowPriorityCores.* of eastus is used up", tried[0]["reason"])
    assert "AllocationFailed" in tried[1]["reason"]
    assert [a["state"] for a in tried] == ["ended"] * 3
    assert await faults.list_machines(stack) == []
    assert all(struck.values()), struck


async def _throttle_and_break(stack: StackInfo) -> None:
    """Until the next scale set is there: 429, 500, a gateway's page, an answer that is lost."""
    await faults.arm_fault(stack, "throttle", count=1, retry_after=2)
    await faults.arm_fault(stack, "error", count=2, status=500)
    await faults.arm_fault(stack, "error", count=1, status=502)
    await faults.arm_fault(stack, "drop", when="after", method="PUT", count=1)


async def _kill_the_service_while_machines_are_made(product: Product, job_id: str) -> None:
    """SIGKILL as soon as the third attempt's machines are in Azure's list."""
    await product.until(job_id, lambda j: j["attempts"]["count"] == 3)

    async def made() -> bool:
        return len(await faults.list_machines(product.stack)) > 0

    await waiting.until(made, bool, interval=0.1, deadline=60)
    await faults.kill_part(product.stack, "service")
