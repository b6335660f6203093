"""A job whose machine is evicted has each of its steps once in MLflow, on the whole product."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests import waiting
from tests.mlflow_server import MlflowServer
from tests.served import served
from tests.system.conftest import opened
from tests.system.product import Product

TRACKED = [{"type": "mlflow", "mlflow": {"experiment": "shop"}}]


def over_http(server: MlflowServer) -> Starlette:
    """Wrap the in-memory server into an app, since the service is another process."""

    async def answer(request: Request) -> Response:
        forwarded = httpx.Request(request.method, str(request.url), content=await request.body())
        response = await server.handle_async_request(forwarded)
        return Response(response.content, response.status_code, media_type="application/json")

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])


@pytest.fixture
async def server() -> MlflowServer:
    return MlflowServer()


@pytest.fixture
async def product(tmp_path: Path, server: MlflowServer) -> AsyncIterator[Product]:
    async with (
        served(over_http(server)) as url,
        opened(tmp_path, REKINDLE_MLFLOW_TRACKING_URI=url) as local_product,
    ):
        yield local_product


async def evict(product: Product, job_id: str) -> None:
    """Take one machine without notice once a checkpoint is committed; wait until it is told."""
    job = await product.until(job_id, lambda j: j["latest_checkpoint"] is not None)
    await product.evict_one(job, notice=False)
    await product.until(job_id, lambda j: j["attempts"]["evictions"] == 1)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_an_evicted_job_is_once_in_mlflow(product: Product, server: MlflowServer) -> None:
    job_id = await product.submit(3, integrations=TRACKED)
    await evict(product, job_id)
    job = await product.finished(job_id)

    async def status() -> str:
        return next((run["info"]["status"] for run in server.runs.values()), "")

    run_status = await waiting.until(status, lambda s: s not in ("", "RUNNING"), deadline=90)

    (logged,) = server.logged.values()
    steps = [m["step"] for m in logged if m["key"] == "train/loss"]
    assert (job["status"], run_status) == ("succeeded", "FINISHED")
    assert job["progress"]["lost_steps"] > 0, "some steps were trained twice"
    assert steps == list(range(1, job["progress"]["total_steps"] + 1))
    assert list(server.experiments) == ["shop"]
