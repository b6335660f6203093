"""A finished model of a real job is forged: nobody is served it, and no job trains on it."""

from collections.abc import AsyncIterator

import httpx
import pytest

from service.storage.azure import AzureBlobStore
from tests import waiting
from tests.nodes.forged import forged
from tests.system.product import Product

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
    where = f"{job['result']['path']}/{WEIGHTS}"
    true, _ = await store.read(job_id, where)
    await store.upload(job_id, where, in_pieces(forged(true, at=len(true) - 100)))
    await store.close()
    served = await product.http.get(f"/fine_tuning/jobs/{job_id}/model/{WEIGHTS}")
    begun = await product.submit(1, infrastructure={"nodes": 1}, model=job_id)
    failed = await product.finished(begun)

    assert (while_it_runs, revoked) == (200, 403)
    assert (served.status_code, served.json()["error"]["code"]) == (409, "content_changed")
    assert failed["status"] == "failed"
    assert f"{WEIGHTS}: sha256 is" in failed["error"]["message"]
