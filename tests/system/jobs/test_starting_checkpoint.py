"""A real job that begins with another one's checkpoint: it has the very model of that step."""

from typing import Any

import pytest

from tests.system.product import JOB, LINES, Product

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
        kept = (await product.get(f"/fine_tuning/jobs/{job['id']}/checkpoints"))["data"]
        start = min(kept, key=lambda each: int(each["step_number"]))
        job = await trained(product, model=start["fine_tuned_model_checkpoint"], training=settings)
        report = await product.get(f"/fine_tuning/jobs/{job['id']}/model/report.json")

        assert 1 < start["step_number"] < max(losses)
        expected = pytest.approx(losses[start["step_number"]], rel=tolerance, abs=0.0)
        assert report["validation"]["before"] == expected
        assert report["validation"]["after"] < report["validation"]["before"]
