"""The measured processes (PostgreSQL, api, reconciler), with the world and the nodes."""

import asyncio
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import ports
from bench.report import CannotMeasure
from bench.scale.parts.line import Line
from rekindle.local import postgres

SIZE, REGION = "Standard_ND96amsr_A100_v4", "eastus"
LIMITS_TIMES = 1000  # Azure's own limits (125 new sets a minute) would dominate
ROW = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
SPARE_FILES = 1000  # open files of a process, besides one for each node
SECRET = secrets.token_hex()  # key that node tokens are derived from
TIMEOUT = 180.0  # timeout for a part to start, seconds
# Durable like a production server; memory of a small one.
SERVER = ("shared_buffers=512MB", "max_connections=300", "max_wal_size=4GB", "wal_level=replica")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Number of processes, intervals of the nodes, and latencies of cloud and Blob."""

    apis: int = 1
    reconcilers: int = 1
    beat: float = 9.9  # seconds between two heartbeats of a node
    commits: float = 600.0  # seconds between two checkpoints of a job
    arm_ms: float = 100.0
    blob_ms: float = 10.0


@dataclass(frozen=True, kw_only=True)
class ScaleStack:
    """A running stack."""

    folder: Path
    data: Path
    ports: tuple[int, ...]
    world: Line
    fleet: Line
    processes: dict[str, list[psutil.Process]]  # by part
    key: str

    @property
    def database(self) -> str:
        """URL of the database for psycopg."""
        return postgres.database_url(self.data).replace("+psycopg", "")

    def api_client(self, timeout: float) -> httpx.AsyncClient:
        """Return a client of the first api process, with an operator's key."""
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.ports[0]}",
            headers={"authorization": f"Bearer {self.key}"},
            timeout=timeout,
            trust_env=False,
        )

    async def job_request(self, api: httpx.AsyncClient, nodes: int) -> dict[str, Any]:
        """Stage a model, upload rows, and return the request for a job."""
        model = await self.world.call("bench.stage")
        data = "\n".join(json.dumps(ROW) for _ in range(40)).encode()
        files = {"file": ("t.jsonl", data)}
        file = await read_answer(api.post("/v1/files", files=files, data={"purpose": "fine-tune"}))
        return {
            "model": model,
            "training_file": file["id"],
            "seed": 7,
            "hyperparameters": {"n_epochs": 50},
            "infrastructure": {"nodes": nodes},
        }

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each part so far."""
        used = {name: sum(map(_seconds, of)) for name, of in self.processes.items()}
        server = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        return used | {"postgres": _with_children(server)}

    def kib(self) -> float:
        """Return the resident memory of the service's processes in KiB."""
        return (
            sum(p.memory_info().rss for name in ("api", "reconciler") for p in self.processes[name])
            / 1024
        )


async def read_answer(pending: Awaitable[httpx.Response]) -> dict[str, Any]:
    """Return the JSON of an answer; raise CannotMeasure unless its status is 200."""
    answer = await pending
    if answer.status_code != 200:
        raise CannotMeasure(f"{answer.url.path} answered {answer.status_code}: {answer.text}")
    document: dict[str, Any] = answer.json()
    return document


def raise_file_limit(nodes: int) -> None:
    """Raise the limit of open files, so that each process can hold a connection for every node.

    Raises:
        CannotMeasure: The hard limit is too low.
    """
    needed, (soft, hard) = nodes + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise CannotMeasure(f"{nodes} nodes take {needed} open files, and {hard} are allowed here")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@asynccontextmanager
async def stack(shape: Shape) -> AsyncIterator[ScaleStack]:
    """Start a stack in a temporary folder; stop and delete it afterwards."""
    with _folder() as folder, _database(folder) as data:
        env = _environment(folder, data)
        world, fleet = folder / "world", folder / "fleet"
        started: list[subprocess.Popen[str]] = []
        listening = [ports.free() for _ in range(shape.apis)]
        try:
            latency_options = ["--arm-ms", str(shape.arm_ms), "--blob-ms", str(shape.blob_ms)]
            started.append(_start(env, "world", str(world), *latency_options))
            await _wait_until_ready(started[-1])
            _run(env, "migrate")
            create = ["key", "create", "--project", "bench", "--scope", "operator"]
            key = _run(env, *create).split()[-1]
            faces = [_start(env, "face", str(world), "api", "--port", str(p)) for p in listening]
            started += faces
            reconcilers = [
                _start(env, "face", str(world), "reconciler") for _ in range(shape.reconcilers)
            ]
            started += reconcilers
            fleet_options = ["--beat", str(shape.beat), "--commits", str(shape.commits)]
            nodes = _start(
                env, "fleet", str(fleet), str(world), "--apis", *map(str, listening), *fleet_options
            )
            started.append(nodes)
            await _wait_until_ready(nodes)
            await asyncio.gather(*(_wait_until_serving(port) for port in listening))
            running = ScaleStack(
                folder=folder,
                data=data,
                ports=tuple(listening),
                world=Line(world),
                fleet=Line(fleet),
                processes={
                    "api": [psutil.Process(p.pid) for p in faces],
                    "reconciler": [psutil.Process(p.pid) for p in reconcilers],
                    "nodes": [psutil.Process(nodes.pid)],
                },
                key=key,
            )
            yield running
            await running.world.close()
            await running.fleet.close()
        finally:
            _stop_processes(started)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rekindle-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _database(folder: Path) -> Iterator[Path]:
    data = folder / "postgres"
    postgres.create_cluster(data)
    postgres.start_server(data, *SERVER)
    try:
        postgres.create_database(data)
        yield data
    finally:
        postgres.stop_server(data)


def _environment(folder: Path, data: Path) -> dict[str, str]:
    (folder / "logs").mkdir()
    return {
        **os.environ,
        "BENCH_LOGS": str(folder / "logs"),
        "REKINDLE_DATABASE_URL": postgres.database_url(data),
        "REKINDLE_STORAGE": "in the world process",
        "REKINDLE_PUBLIC_URL": "http://bench",
        "REKINDLE_SECRET_KEY": SECRET,
        "REKINDLE_DEPLOYMENT": "bench",
        "REKINDLE_CLOUD": "fake",
        "REKINDLE_OFFERINGS": f"{SIZE}@{REGION}",
        "REKINDLE_READ_LAG_SECONDS": "2",
        "REKINDLE_AZURE_LIMITS_TIMES": str(LIMITS_TIMES),
        "REKINDLE_REQUESTS_PER_MINUTE": str(10**6),  # one key sends everything
    }


def _start(env: dict[str, str], program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"bench.scale.parts.{program}", *arguments]
    log = Path(env["BENCH_LOGS"]) / f"{program}-{arguments[1] if program == 'face' else ''}.log"
    with log.open("a") as errors:
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)


def _run(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "service.main", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasure(f"service.main {arguments[0]} failed:\n{done.stderr}")
    return done.stdout


async def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    line = await asyncio.to_thread(process.stdout.readline)
    if line.strip() != "ready":
        raise CannotMeasure(f"{process.args!r} did not start: {line!r}")


async def _wait_until_serving(port: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                if loop.time() > deadline:
                    raise CannotMeasure(f"no server listens on port {port}") from None
            await asyncio.sleep(0.2)


def _stop_processes(started: list[subprocess.Popen[str]]) -> None:
    for process in reversed(started):
        process.terminate()
    for process in started:
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _with_children(server: psutil.Process) -> float:
    """Return CPU seconds of a server and its connection processes, ended ones included."""
    times = server.cpu_times()
    ended = times.children_user + times.children_system
    running = sum(_seconds(child) for child in server.children())
    return _seconds(server) + float(ended) + running
