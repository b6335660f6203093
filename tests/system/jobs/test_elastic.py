"""An elastic job on the whole product: three machines, then two, then three again.

Every step trains the samples that an uninterrupted run trains in it. What the number of machines
changes is the order in which gradients are summed, so the run is in fp32. It would also change
which elements drop out, so the model has no dropout. And where training is unstable any last bit
grows by orders of magnitude within a hundred steps (`tests/system/exactness/one_bit.py`), so the
learning rate is one at which the loss falls steadily.
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rekindle.local import faults
from rekindle.local.layout import TINY_MODEL, model_folder
from rekindle.stage import stage_model
from service.storage.azure import AzureBlobStore
from tests.system.exactness.matrix import ROUNDING, apart
from tests.system.exactness.worlds import drop_dropout
from tests.system.product import JOB, Product
from trainer.contract import HEAD, Head

BATCH = 12
EPOCHS = 12
CALM = "rekindle/tiny-calm"
THREE_OR_TWO = {"nodes": 3, "elastic": {"min_nodes": 2}}
TRAINING = {**JOB["training"], "precision": "fp32", "learning_rate": 1e-4}  # type: ignore[dict-item] # JSON


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_an_elastic_job_trains_on_with_two_of_three_machines_and_with_three_again(
    product: Product, record_property: Callable[[str, object], None]
) -> None:
    await asyncio.to_thread(_stage_without_dropout, product)
    chats = _chats(600)
    job_id = await _submit(product, chats)
    job = await product.until(job_id, lambda j: j["latest_checkpoint"] is not None)
    machines = await faults.list_machines(product.stack, job["attempts"]["current"])
    await faults.evict_vm(product.stack, machines[-1], notice=False)
    await product.until(job_id, _trains_on("2 of 3"))
    await product.until(job_id, _trains_on("3 machines"))
    job = await product.finished(job_id)
    twin_id = await _submit(product, chats)
    twin = await product.finished(twin_id)

    (attempt,) = await product.attempts(job_id)
    assert (job["status"], twin["status"]) == ("succeeded", "succeeded")
    assert [g["nodes"] for g in attempt["generations"]] == [3, 2, 3]
    assert (job["attempts"]["evictions"], attempt["evicted"]["unnoticed"]) == (1, 1)
    committed = (await _head(product, job_id)).checkpoints
    assert committed
    assert all(c.consumed_samples == BATCH * c.step for c in committed)
    steps, twin_steps = await _steps(product, job_id), await _steps(product, twin_id)
    members = ("step", "tokens", "learning_rate")
    assert [[s[m] for m in members] for s in steps] == [[s[m] for m in members] for s in twin_steps]
    changes = [g["from_step"] for g in attempt["generations"][1:]]
    deviations = [apart(a["loss"], b["loss"]) for a, b in zip(steps, twin_steps, strict=True)]
    record_property("apart", _record(deviations, changes))
    assert not any(deviations[: changes[0]]), "the same world is exact"
    beyond = [
        n for n, deviation in enumerate(deviations, 1) if deviation > _allowed(n - changes[0])
    ]
    assert not beyond, _record(deviations, changes)


def _allowed(steps: int) -> float:
    """Of what a step's rounding may do, once for each step since the world first changed.

    Later steps start from weights that earlier ones have rounded otherwise.
    """
    return ROUNDING["fp32"] * max(steps, 0)


def _record(deviations: Sequence[float], changes: Sequence[int]) -> dict[str, object]:
    """For people: the largest difference, and those around each change of the world."""
    around = {
        c: [f"{deviation:.1e}" for deviation in deviations[max(c - 2, 0) : c + 8]] for c in changes
    }
    worst = max(range(len(deviations)), key=lambda n: deviations[n])
    return {
        "worst": deviations[worst],
        "at_step": worst + 1,
        "steps": len(deviations),
        "around": around,
    }


def _stage_without_dropout(product: Product) -> None:
    """Stage the tiny model a second time, without dropout."""
    folder = product.stack.state / "tiny-calm"
    shutil.copytree(model_folder(TINY_MODEL), folder)
    drop_dropout(folder)
    stage_model(product.stack.storage, CALM, folder)


async def _submit(product: Product, chats: bytes) -> str:
    options = {"model": CALM, "training": TRAINING, "infrastructure": THREE_OR_TWO}
    return await product.submit(EPOCHS, chats, batch_size=BATCH, **options)


async def _head(product: Product, job_id: str) -> Head:
    account = AzureBlobStore(product.stack.storage)
    try:
        data, _ = await account.read(job_id, HEAD)
    finally:
        await account.close()
    return Head.from_json(data)


def _trains_on(machines: str) -> Any:  # noqa: ANN401 - a predicate
    return lambda job: job["status_reason"]["message"].startswith(f"Training on {machines}")


async def _steps(product: Product, job_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while True:
        after = rows[-1]["step"] + 1 if rows else 1
        page = await product.get(f"/fine_tuning/jobs/{job_id}/metrics?from_step={after}&limit=1000")
        rows += page["data"]
        if not page["has_more"]:
            return rows


def _chats(rows: int) -> bytes:
    """No two of neighbouring length, so that a step's tokens tell which rows were in it."""
    lines = []
    for n in range(rows):
        question = " ".join(["one more"] * (n * 7 % 23))
        messages = [
            {"role": "user", "content": f"Count {n}"},
            {"role": "assistant", "content": f"{n} {question}"},
        ]
        lines.append(json.dumps({"messages": messages}))
    return "\n".join(lines).encode()
