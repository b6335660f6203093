"""A real MLflow server and the real package wandb, offline, take what we send: each step once.

They bring too much along for our own environment. Where `.venv-trackers` holds them
(`python -m venv .venv-trackers && .venv-trackers/bin/pip install mlflow wandb`), they are tried.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.domain.states import JobState
from service.trackers.mlflow import API, Mlflow, _body
from service.trackers.tracker import Point, TrackerError, TrackerRun
from service.trackers.wandb import Wandb
from service.trackers.workspace import EntraSignIn
from tests.contract.test_trackers import JOB, OPTIONS, SCOPE, URI, WORKSPACE_ID, Credential, points
from tests.waiting import until
from trainer.supervisor.machine.network import free_port

ROOT = Path(__file__).resolve().parents[3]
BIN = ROOT / ".venv-trackers" / "bin"
KEY = "0123456789abcdef" * 2 + "01234567"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not BIN.exists(), reason="no .venv-trackers here: the module says how to make it"
    ),
]


@contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    """Serve MLflow with a SQLite database and yield its URL."""
    port = free_port("127.0.0.1")
    store = ("--backend-store-uri", f"sqlite:///{folder}/mlflow.db")
    options = ("--host", "127.0.0.1", "--port", str(port), "--workers", "1", *store)
    server = subprocess.Popen(
        [BIN / "mlflow", "server", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


async def _answers(url: str) -> bool:
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{url}/health")).is_success
    except httpx.HTTPError:
        return False


def a_run(kind: str, outcome: JobState | None = None) -> TrackerRun:
    return TrackerRun(job_id=JOB, started_at=1000.0, options=OPTIONS[kind], outcome=outcome)


async def test_a_real_mlflow_has_each_step_once_and_drops_a_repeated_batch(tmp_path: Path) -> None:
    with mlflow(tmp_path) as url:
        await until(lambda: _answers(url), bool, deadline=120)
        tracker = Mlflow.at(url, "")
        await tracker.send(a_run("mlflow"), points(1, 2, 3))
        await tracker.send(a_run("mlflow"), points(1, 2, 3, 4))
        run_url = await tracker.send(a_run("mlflow", JobState.SUCCEEDED), points(4, 5))
        run_id = run_url.rsplit("/", 1)[-1]
        repeated: list[Point] = points(4, 5)
        await tracker.client.post(
            f"{API}/runs/log-batch", json={"run_id": run_id, **_body(repeated)}
        )
        query: dict[str, Any] = {"run_id": run_id, "metric_key": "train/loss"}
        logged = await tracker.client.get(f"{API}/metrics/get-history", params=query)
        run = await tracker.client.get(f"{API}/runs/get", params={"run_id": run_id})
        await tracker.close()

    assert [m["step"] for m in logged.json()["metrics"]] == [1, 2, 3, 4, 5]
    assert run.json()["run"]["info"]["status"] == "FINISHED"


async def test_a_real_mlflow_passes_the_check(tmp_path: Path) -> None:
    with mlflow(tmp_path) as url:
        await until(lambda: _answers(url), bool, deadline=120)
        tracker, misdirected = Mlflow.at(url, ""), Mlflow.at(f"{url}/elsewhere", "")
        await tracker.check()
        with pytest.raises(TrackerError, match="experiments/search with 404"):
            await misdirected.check()
        body: dict[str, Any] = {"max_results": -1}  # so that the call is seen to read its body
        refused = await tracker.client.post(f"{API}/experiments/search", json=body)
        await tracker.close()
        await misdirected.close()

    assert refused.json()["error_code"] == "INVALID_PARAMETER_VALUE"


async def test_jobs_copied_twice_into_a_real_mlflow_are_one_run_each(tmp_path: Path) -> None:
    """What `rekindle metrics --mlflow` does, in an environment that has the package."""
    program = (
        "import sys; from rekindle.cli.jobs.trackers import copy_to_mlflow\n"
        'for job in (sys.argv[2], "it\'s", \'the "first"\'):\n'
        "  for last in (3, 5):\n"
        "    rows = [(n, 1000.0 + n, {'train/loss': 2.0}) for n in range(1, last)]\n"
        "    print(copy_to_mlflow(sys.argv[1], job, rows))"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with mlflow(tmp_path) as url:
        await until(lambda: _answers(url), bool, deadline=120)
        process = await asyncio.create_subprocess_exec(
            *(BIN / "python", "-c", program, url, JOB),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        lines = (await process.communicate())[0].decode().splitlines()
        runs = [line.split()[1] for line in lines]
        tracker = Mlflow.at(url, "")
        query: dict[str, Any] = {"run_id": runs[0], "metric_key": "train/loss"}
        logged = await tracker.client.get(f"{API}/metrics/get-history", params=query)
        await tracker.close()

    assert len(lines) == 6  # what MLflow prints does not get between ours
    assert [runs[0], runs[2], runs[4]] == [runs[1], runs[3], runs[5]]
    assert len(set(runs)) == 3
    assert [m["step"] for m in logged.json()["metrics"]] == [1, 2, 3, 4]


@dataclass
class Workspace(httpx.AsyncBaseTransport):
    """A real MLflow server behind the address and the sign-in of an Azure ML workspace."""

    server: str
    inner: httpx.AsyncHTTPTransport = field(default_factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.headers.get("authorization", "").startswith("Bearer token-"):
            return httpx.Response(401, json={"error": {"code": "UserError"}})
        path = request.url.raw_path.removeprefix(f"/mlflow/v2.0{WORKSPACE_ID}".encode())
        server = httpx.URL(self.server)
        request.url = server.copy_with(raw_path=path)
        request.headers["host"] = server.netloc.decode()
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def test_a_real_mlflow_behind_a_sign_in_has_each_step_once(tmp_path: Path) -> None:
    with mlflow(tmp_path) as url:
        await until(lambda: _answers(url), bool, deadline=120)
        sign_in = EntraSignIn(credential=Credential(), scope=SCOPE)
        tracker = Mlflow.of_workspace(URI, sign_in, Workspace(url))
        run_url = await tracker.send(a_run("mlflow"), points(1, 2))
        await tracker.send(a_run("mlflow"), points(1, 2, 3))  # killed before it wrote the address
        finished_run = replace(a_run("mlflow", JobState.SUCCEEDED), url=run_url)
        await tracker.send(finished_run, points(3, 4))
        run_id = run_url.partition("/runs/")[2].partition("?")[0]
        query: dict[str, Any] = {"run_id": run_id, "metric_key": "train/loss"}
        logged = await tracker.client.get(f"{API}/metrics/get-history", params=query)
        await tracker.close()

    assert [m["step"] for m in logged.json()["metrics"]] == [1, 2, 3, 4]


async def _send_twice(tracker: Wandb) -> None:
    await tracker.send(a_run("wandb"), points(1, 2, 3))
    await tracker.send(a_run("wandb", JobState.SUCCEEDED), points(4, 5))


def test_the_real_wandb_takes_batches_offline_and_writes_no_key(tmp_path: Path) -> None:
    environment = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    asyncio.run(_send_twice(Wandb(key=KEY, environment=environment, python=str(BIN / "python"))))

    program = [BIN / "python", Path(__file__).with_name("wandb_steps.py"), tmp_path]
    process = subprocess.run(program, capture_output=True, check=True)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert json.loads(process.stdout) == [1, 2, 3, 4, 5]
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []
