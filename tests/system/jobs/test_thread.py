"""The promise, kept on the whole product: real HTTP, SDK, DeepSpeed and evictions.

One job loses a machine with notice, the control plane by SIGKILL, and a machine without
notice; its twin loses nothing. Both end with the very same parameters. The model is tiny:
`test_quickstart.py` trains a real one.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from rekindle.local import faults
from rekindle.local.layout import TINY_MODEL
from tests.system.conftest import opened
from tests.system.jobs.browser import BROWSER, browse
from tests.system.product import Product
from trainer.samples import sample_rows

JOB = {
    "model": TINY_MODEL,
    "seed": 3,
    "method": {
        "type": "supervised",
        "supervised": {"hyperparameters": {"n_epochs": 30, "batch_size": 6}},
    },
}
OURS = {
    "infrastructure": {"nodes": 2},
    "training": {
        "adapter": {"type": "lora"},
        "zero_stage": 2,
        "max_seq_len": 64,
        "learning_rate": 0.002,
        "checkpoint_seconds": 2,
        "eval_steps": 80,
    },
}


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    async with opened(tmp_path_factory.mktemp("thread")) as local_product:
        yield local_product


async def submit(product: Product) -> str:
    """Upload both files and submit the job by OpenAI's client."""
    stack = product.stack
    async with AsyncOpenAI(base_url=f"{stack.api_url}/v1", api_key=stack.api_key) as client:
        files = []
        for held_out in (False, True):
            rows = sample_rows("chats", held_out=held_out)
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
            file = await client.files.create(file=("chats.jsonl", data), purpose="fine-tune")
            files.append(file.id)
        job = await client.fine_tuning.jobs.create(
            training_file=files[0],
            validation_file=files[1],
            extra_body=OURS,
            **JOB,  # type: ignore[arg-type]
        )
    return job.id


@dataclass
class Ended:
    """A job that was evicted twice and lost its service, and its undisturbed twin."""

    job: dict[str, Any]
    twin: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(product: Product) -> Ended:
    job_id = await submit(product)
    job = await product.until(job_id, _training(attempt=1), 600)
    await product.evict_one(job, notice=True)
    await product.until(job_id, lambda j: j["attempts"]["count"] == 2, 600)
    await faults.kill_part(product.stack, "service")
    job = await product.until(job_id, _training(attempt=2), 600)
    await product.evict_one(job, notice=False)
    await product.finished(job_id)
    twin_id = await submit(product)
    job, twin = [
        await product.until(id_, lambda j: j["cost"]["final"], 600) for id_ in (job_id, twin_id)
    ]
    return Ended(job, twin)


async def test_a_job_that_is_evicted_twice_and_loses_its_service_ends_like_its_twin(
    product: Product, ended: Ended
) -> None:
    job, twin = ended.job, ended.twin
    curves = [await _curve(product, j["id"]) for j in (job, twin)]
    report = await product.get(f"/fine_tuning/jobs/{job['id']}/model/report.json")
    tried = await product.attempts(job["id"])
    twin_events = (await product.get(f"/fine_tuning/jobs/{twin['id']}/events?limit=100"))["data"]

    assert (job["status"], twin["status"]) == ("succeeded", "succeeded")
    assert job["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
    assert curves[0] == curves[1]
    assert report["validation"]["after"] < report["validation"]["before"]
    assert twin["plan"]["verify_seconds"] > 0
    assert [e["message"] for e in twin_events if "not verified" in e["message"]] == []
    assert [a["outcome"] for a in tried] == ["evicted", "evicted", "succeeded"]
    assert tried[0]["lost_steps"] == 0  # it was noticed
    assert await faults.list_machines(product.stack) == []


@pytest.mark.skipif(
    BROWSER is None, reason="No Chrome or Chromium: apt install chromium, or set CHROME"
)
async def test_the_console_shows_them_without_a_fault(product: Product, ended: Ended) -> None:
    code, output = await browse(product.stack, ended.job["id"])

    assert code == 0, output


def _training(attempt: int) -> Callable[[dict[str, Any]], bool]:
    """Return a test for whether a job's attempt of this number has trained a step of its own."""
    return lambda job: job["attempts"]["count"] == attempt and job["phase"] == "training"


async def _curve(product: Product, job_id: str) -> list[tuple[int, float]]:
    series = await product.get(f"/fine_tuning/jobs/{job_id}/metrics")
    return [(row["step"], row["loss"]) for row in series["data"]]
