"""The promise, kept on the whole product: real HTTP, SDK, DeepSpeed and evictions.

One job loses a machine with notice, the control plane by SIGKILL, and a machine without
notice; its twin loses nothing. Both end with the very same parameters. The model is tiny:
`test_quickstart.py` trains a real one.
"""

import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from bench import ports
from rekindle.local.layout import TINY_MODEL
from tests import waiting
from tests.system.jobs.browser import BROWSER, browse
from tests.system.stacks import Up, up
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


@dataclass
class Product:
    """A running stack and its clients."""

    stack: Up
    client: AsyncOpenAI
    azure: httpx.AsyncClient

    async def upload(self, *, held_out: bool) -> str:
        rows = sample_rows("chats", held_out=held_out)
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        file = await self.client.files.create(file=("chats.jsonl", data), purpose="fine-tune")
        return file.id

    async def submit(self) -> str:
        job = await self.client.fine_tuning.jobs.create(
            training_file=await self.upload(held_out=False),
            validation_file=await self.upload(held_out=True),
            extra_body=OURS,
            **JOB,  # type: ignore[arg-type]
        )
        return job.id

    async def wait(
        self, job_id: str, accept: Callable[[dict[str, Any]], bool], seconds: float = 600.0
    ) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            return await self.get(f"/fine_tuning/jobs/{job_id}")

        return await waiting.until(look, accept, interval=0.3, deadline=seconds)

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.client.get(path, cast_to=object)
        assert isinstance(answer, dict)
        return answer

    async def report(self, job_id: str) -> dict[str, Any]:
        path = f"/fine_tuning/jobs/{job_id}/model/report.json"
        answer = await self.client.get(path, cast_to=httpx.Response)
        found: dict[str, Any] = answer.json()
        return found

    async def machines(self, scale_set: str = "") -> list[dict[str, Any]]:
        answer = await self.azure.get("/_emulator/virtualMachines")
        listed: list[dict[str, Any]] = answer.raise_for_status().json()["value"]
        return [m for m in listed if scale_set in m["scale_set"]]

    async def evict(self, job: dict[str, Any], *, notice: bool) -> None:
        name = "rk-" + job["attempts"]["current"].removeprefix("att-")
        victim = (await self.machines(name))[0]
        body = {"scale_set": name, "instance_id": victim["instance_id"], "notice": notice}
        (await self.azure.post("/_emulator/evict", json=body)).raise_for_status()

    def kill_service(self) -> None:
        pid = int((self.stack.state / "pids" / "service").read_text())
        os.kill(pid, signal.SIGKILL)


_RETRIES = 20  # two minutes: the service is killed, and comes back


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    state = tmp_path_factory.mktemp("thread") / "state"
    async with up(state, ports.free(4)) as stack:
        facts = stack.facts()
        trust = ssl.create_default_context(cafile=facts["ca"])
        url = f"{facts['api_url']}/v1"
        async with (
            AsyncOpenAI(base_url=url, api_key=facts["api_key"], max_retries=_RETRIES) as client,
            httpx.AsyncClient(base_url=facts["arm_url"], verify=trust, trust_env=False) as azure,
        ):
            yield Product(stack, client, azure)


@dataclass
class Ended:
    """A job that was evicted twice and lost its service, and its undisturbed twin."""

    job: dict[str, Any]
    twin: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(product: Product) -> Ended:
    job_id = await product.submit()
    job = await product.wait(job_id, _training(attempt=1))
    await product.evict(job, notice=True)
    await product.wait(job_id, lambda j: j["attempts"]["count"] == 2)
    product.kill_service()
    job = await product.wait(job_id, _training(attempt=2))
    await product.evict(job, notice=False)
    await product.wait(job_id, lambda j: j["finished_at"] is not None)
    twin_id = await product.submit()
    await product.wait(twin_id, lambda j: j["finished_at"] is not None)
    job, twin = [await product.wait(i, lambda j: j["cost"]["final"]) for i in (job_id, twin_id)]
    return Ended(job, twin)


async def test_a_job_that_is_evicted_twice_and_loses_its_service_ends_like_its_twin(
    product: Product, ended: Ended
) -> None:
    job, twin = ended.job, ended.twin
    curves = [await _curve(product, j["id"]) for j in (job, twin)]
    report = await product.report(job["id"])
    tried = (await product.get(f"/fine_tuning/jobs/{job['id']}/attempts"))["data"]
    told = (await product.get(f"/fine_tuning/jobs/{twin['id']}/events?limit=100"))["data"]

    assert (job["status"], twin["status"]) == ("succeeded", "succeeded")
    assert job["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
    assert curves[0] == curves[1]
    assert report["validation"]["after"] < report["validation"]["before"]
    assert twin["plan"]["verify_seconds"] > 0
    assert [e["message"] for e in told if "not verified" in e["message"]] == []
    assert [a["outcome"] for a in tried] == ["evicted", "evicted", "succeeded"]
    assert tried[0]["lost_steps"] == 0  # it was noticed
    assert await product.machines() == []


@pytest.mark.skipif(
    BROWSER is None, reason="No Chrome or Chromium: apt install chromium, or set CHROME"
)
async def test_every_page_of_the_console_shows_them_without_a_fault(
    product: Product, ended: Ended
) -> None:
    code, output = await browse(product.stack, ended.job["id"])

    assert code == 0, output


def _training(attempt: int) -> Callable[[dict[str, Any]], bool]:
    """Return a test for whether a job's attempt of this number has trained a step of its own."""
    return lambda job: job["attempts"]["count"] == attempt and job["phase"] == "training"


async def _curve(product: Product, job_id: str) -> list[tuple[int, float]]:
    series = await product.get(f"/fine_tuning/jobs/{job_id}/metrics")
    return [(row["step"], row["loss"]) for row in series["data"]]
