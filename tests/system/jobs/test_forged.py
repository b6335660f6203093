"""Real jobs that begin with another one's model: that of its step, and never a forged one."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.storage.azure import AzureBlobStore
from tests import waiting
from tests.nodes.forged import forged
from tests.system.product import JOB, LINES, Product

WEIGHTS = "model.safetensors"


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 64 * 1024):
        yield data[at : at + 64 * 1024]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_forged_model_is_neither_served_nor_trained_on(product: Product) -> None:
    job_id = await product.submit(1, infrastructure={"nodes": 1})
    await product.until(job_id, lambda j: j["status"] == "running")
    (attempt, *_) = await product.attempts(job_id)
    store = AzureBlobStore(product.stack.storage)
    url = f"{store.policy_url(job_id, attempt['id'])}&restype=container&comp=list"
    async with httpx.AsyncClient() as node:
        while_it_runs = (await node.get(url)).status_code
        job = await product.finished(job_id)
        assert job["status"] == "succeeded", job["error"]

        async def ask() -> int:
            return (await node.get(url)).status_code

        revoked = await waiting.until(ask, lambda status: status == 403, deadline=120)
    path = f"{job['result']['path']}/{WEIGHTS}"
    true, _ = await store.read(job_id, path)
    await store.upload(job_id, path, in_pieces(forged(true, at=len(true) - 100)))
    await store.close()
    served = await product.http.get(f"/fine_tuning/jobs/{job_id}/model/{WEIGHTS}")
    begun = await product.submit(1, infrastructure={"nodes": 1}, model=job_id)
    failed = await product.finished(begun)

    assert (while_it_runs, revoked) == (200, 403)
    assert (served.status_code, served.json()["error"]["code"]) == (409, "content_changed")
    assert failed["status"] == "failed"
    assert f"{WEIGHTS}: sha256 is" in failed["error"]["message"]


DATA = "\n".join(LINES[:80]).replace("{m}", "the next").encode()
EACH_STEP: dict[str, Any] = {**JOB["training"], "eval_steps": 1, "checkpoint_seconds": 1}  # type: ignore[dict-item]
LORA = {"adapter": {"type": "lora", "r": 4}, "learning_rate": 0.01}


async def trained(product: Product, **body: Any) -> dict[str, Any]:  # noqa: ANN401
    """Run a one-machine job until it succeeds, with a validation loss for each step."""
    form = {"files": {"file": ("held-out.jsonl", DATA[:2000].rpartition(b"\n")[0])}}
    answer = await product.http.post("/files", **form, data={"purpose": "fine-tune"})  # type: ignore[arg-type] # a form
    held_out = answer.raise_for_status().json()["id"]
    alone: dict[str, Any] = {"infrastructure": {"nodes": 1}, "validation_file": held_out}
    job_id = await product.submit(3, DATA, **alone, **body)
    job = await product.finished(job_id)
    assert job["status"] == "succeeded", job["error"]
    return job


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_job_begins_with_the_model_of_the_step_that_it_names(product: Product) -> None:
    """Of a whole model to the bit; of adapters but for the rounding of the merged weights."""
    job = await trained(product, training=EACH_STEP)
    for settings, tolerance in ((EACH_STEP | LORA, 0.0), (EACH_STEP, 1e-3)):
        series = (await product.get(f"/fine_tuning/jobs/{job['id']}/metrics"))["data"]
        losses = {row["step"]: row["valid_loss"] for row in series}
        checkpoints = (await product.get(f"/fine_tuning/jobs/{job['id']}/checkpoints"))["data"]
        start = min(checkpoints, key=lambda checkpoint: int(checkpoint["step_number"]))
        job = await trained(product, model=start["fine_tuned_model_checkpoint"], training=settings)
        report = await product.get(f"/fine_tuning/jobs/{job['id']}/model/report.json")

        assert 1 < start["step_number"] < max(losses)
        expected = pytest.approx(losses[start["step_number"]], rel=tolerance, abs=0.0)
        assert report["validation"]["before"] == expected
        assert report["validation"]["after"] < report["validation"]["before"]
