"""The whole product while machines are cut off from service and Blob: for a while, for good."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rekindle.local import faults
from rekindle.local.faults import LocalMachine, StackInfo
from tests import waiting
from tests.system.conftest import opened
from tests.system.product import Product, saved_step

EPOCHS, STEPS_AN_EPOCH = 12, 40


@pytest.fixture
async def fenced(tmp_path: Path) -> AsyncIterator[Product]:
    """One that soon gives up whom it does not hear."""
    async with opened(tmp_path, REKINDLE_SILENCE_SECONDS="15") as product:
        yield product


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_machines_that_are_cut_off_catch_up_and_once_given_up_nobody_listens_to_them(
    fenced: Product,
) -> None:
    stack = fenced.stack
    job_id = await fenced.submit(epochs=EPOCHS)
    before = await fenced.until(job_id, lambda j: j["latest_checkpoint"] is not None)
    machines = sorted(await faults.list_machines(stack), key=lambda vm: vm.vm_id)  # in rank order
    await faults.cut_node(stack, machines[-1], 2)
    await faults.cut_node(stack, machines[-1], 2, mode="reset")
    await fenced.until(job_id, lambda j: saved_step(j) > saved_step(before))
    attempts = await fenced.attempts(job_id)
    hanging = await faults.arm_fault(stack, "delete_hangs")  # or they would be dead by then
    async with _cut_off(stack, machines, stack.api_url):
        async with _cut_off(stack, machines, stack.blob_url):
            await fenced.until(job_id, _is_training_in_attempt(2))
        await _until_printed(machines[:1], "how=stopped HEAD is 2's, not 1's")
    await _until_printed(machines, "node.dismissed")
    trained_on = _losses(machines[0])
    await faults.clear_faults(stack, hanging)
    finished = await fenced.finished(job_id)
    tried = await fenced.attempts(job_id)
    series = (await fenced.get(f"/fine_tuning/jobs/{job_id}/metrics"))["data"]
    curve = {row["step"]: row["loss"] for row in series}

    assert len(attempts) == 1
    assert finished["status"] == "succeeded"
    assert [a["outcome"] for a in tried] == ["unresponsive", "succeeded"]
    assert [row["step"] for row in series] == list(range(1, EPOCHS * STEPS_AN_EPOCH + 1))
    assert max(trained_on) > tried[1]["from_step"]  # both attempts did these steps
    assert trained_on == {step: curve[step] for step in trained_on}
    await waiting.until(lambda: faults.list_machines(stack), lambda remaining: not remaining)


@asynccontextmanager
async def _cut_off(stack: StackInfo, machines: list[LocalMachine], url: str) -> AsyncIterator[None]:
    async with AsyncExitStack() as cuts:
        for vm in machines:
            await cuts.enter_async_context(
                faults.network_partition(stack, vm, to=urlsplit(url).netloc)
            )
        yield


async def _until_printed(machines: list[LocalMachine], message: str) -> None:
    """Wait until the supervisor of each has said so."""
    for vm in machines:
        log = vm.folder / "containers" / "rekindle.log"
        await waiting.until(
            lambda log=log: asyncio.to_thread(log.read_text),  # type: ignore[misc] # mypy takes the default for a parameter
            lambda text: message in text,
            deadline=60,
        )


def _is_training_in_attempt(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda j: j["attempts"]["count"] == number and j["phase"] == "training"


def _losses(machine: LocalMachine) -> dict[int, float]:
    """Return the losses that the machine of rank 0 measured in its last generation.

    They include those that never reached the service.
    """
    *_, newest = sorted(machine.folder.glob("fs/**/gen-*/metrics.jsonl"))
    rows = [json.loads(line) for line in newest.read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows}
