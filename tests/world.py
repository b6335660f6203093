"""The whole service in one process: real PostgreSQL, the shipped fakes, a clock that tests move."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Scope
from service.api.app import make_app
from service.api.deps import Parts, PlanDefaults
from service.api.jobs import submissions
from service.cloud.fake import FakeCloud
from service.db.core.engine import driver_url
from service.db.core.notify import Listener
from service.domain.cloud.fleet import Offering, Price
from service.domain.lifecycle.attempt import AttemptTiming
from service.domain.states import CapacityType
from service.operations.jobs.preflights import Preflights
from service.operations.models import models
from service.operations.nodes.grants import Granter
from service.operations.projects import keys
from service.preflight.inline import InlineChecker
from service.pricing.fixed import FixedPrices
from service.reconciler.attempts.attempts import AttemptReconciler
from service.reconciler.attempts.scale_sets import SpecMaker
from service.reconciler.jobs.jobs import JobReconciler
from service.reconciler.jobs.preparation import Preparation
from service.reconciler.sweeps.orphans import OrphanSweep
from service.storage.fake import MemoryStore
from service.storage.store import BlobStore
from tests.answers import Documented
from tests.clock import Clock
from tests.vocabulary import tokenizer_files

SPOT = Offering(
    region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
)
PRICE = Price(hourly=Decimal("8.44"), on_demand_hourly=Decimal("32.77"))
TABLE = {SPOT: PRICE}
ON_DEMAND = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
BOTH = {
    SPOT: PRICE,
    ON_DEMAND: Price(hourly=PRICE.on_demand_hourly, on_demand_hourly=PRICE.on_demand_hourly),
}
SECRET = "a secret that is long enough for the tests"
MODEL = "rekindle/tiny-llama"
JOBS = "/v1/fine_tuning/jobs"
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
ROW = {
    "messages": [
        {"role": "user", "content": "What is two and two?"},
        {"role": "assistant", "content": "Four."},
    ]
}
DATASET = "\n".join(json.dumps(ROW) for _ in range(40)).encode()

_NEXT_DUE = """
select least(
  (select min(greatest(due_at, lease_expires_at)) from jobs
    where finished_at is null and due_at < 'infinity'),
  (select min(greatest(due_at, lease_expires_at)) from attempts
    where ended_at is null and due_at < 'infinity'))
"""


@dataclass
class World:
    """Everything that a test of the service uses."""

    engine: AsyncEngine
    clock: Clock
    parts: Parts
    http: httpx.AsyncClient
    listener: Listener
    cloud: FakeCloud
    store: MemoryStore
    key: str
    pace: AttemptTiming
    attempts: AttemptReconciler = field(init=False)
    jobs: JobReconciler = field(init=False)
    orphans: OrphanSweep = field(init=False)

    def __post_init__(self) -> None:
        """Create the reconcilers as main does."""
        specs = SpecMaker(
            public_url="http://service",
            secret=SECRET,
            image="rekindle-trainer:test",
            accelerator="cpu",
            deployment="test",
        )
        self.attempts = AttemptReconciler(
            engine=self.engine,
            cloud=self.cloud,
            store=self.store,
            specs=specs,
            pace=self.pace,
            now=self.clock,
        )
        self.jobs = JobReconciler(
            engine=self.engine,
            preparation=preparation(self.parts),
            prices=self.parts.prices,
            now=self.clock,
        )
        self.orphans = OrphanSweep(engine=self.engine, cloud=self.cloud, now=self.clock)

    async def tick(self, times: int = 1, seconds: float = 15.0) -> None:
        """Advance the clock and run every reconciler, ``times`` times.

        Rounds in which no row is due are skipped: they would only ask the database for nothing.
        """
        wake_at = self.clock()
        for remaining in reversed(range(times)):
            self.clock.advance(seconds=seconds)
            if self.clock() < wake_at:
                self.attempts.visibility.record_round(self.clock())
                continue
            steps = await self.jobs.run_once() + await self.attempts.run_once()
            if remaining > 1 and not steps:
                wake_at = await self.next_due()

    async def next_due(self) -> datetime:
        """Return when the first job or attempt is due."""
        async with self.engine.connect() as conn:
            due_at: datetime | None = (await conn.execute(text(_NEXT_DUE))).scalar_one()
        return due_at or datetime.max.replace(tzinfo=UTC)

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        """Send a request with the user's key."""
        headers = bearer(self.key) | options.pop("headers", {})
        return await self.http.request(method, path, headers=headers, **options)

    async def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of an answer to the user's key, which must be 200."""
        answer = await self.call("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @asynccontextmanager
    async def beside(self, **parts: Any) -> AsyncIterator["World"]:  # noqa: ANN401 - of any type
        """Yield the same world behind a service with other parts."""
        parts_beside = replace(self.parts, **parts)
        async with client(make_app(parts_beside)) as http:
            yield replace(self, http=http, parts=parts_beside)

    async def other_key(self, project: str = "others") -> str:
        """Create a key of another project and return it."""
        async with self.engine.begin() as conn:
            return await keys.create(conn, project, "tests", self.clock())

    async def upload(self, data: bytes = DATASET) -> str:
        """Upload a dataset and return its id."""
        answer = await self.call(
            "POST",
            "/v1/files",
            files={"file": ("train.jsonl", data)},
            data={"purpose": "fine-tune"},
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def job_request(self) -> dict[str, Any]:
        """Return the default request for a job, with a newly uploaded file."""
        return {
            "model": MODEL,
            "training_file": await self.upload(),
            "seed": 7,
            "infrastructure": {"nodes": 2},
        }

    async def submit(self, **overrides: Any) -> dict[str, Any]:  # noqa: ANN401
        """Submit a job with a newly uploaded file and return it."""
        body = await self.job_request() | overrides
        answer = await self.call("POST", "/v1/fine_tuning/jobs", json=body)
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] = answer.json()
        return job

    async def job(self, job_id: str) -> dict[str, Any]:
        """Return the job as the API shows it."""
        answer = await self.call("GET", f"/v1/fine_tuning/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] = answer.json()
        return job

    async def attempts_of(self, job_id: str) -> list[dict[str, Any]]:
        """Return the job's attempts, oldest first."""
        answer = await self.call("GET", f"/v1/fine_tuning/jobs/{job_id}/attempts")
        attempts: list[dict[str, Any]] = answer.json()["data"]
        return attempts

    async def events(self, job_id: str, code: str = "") -> list[dict[str, Any]]:
        """Return the job's last 100 events (or those with ``code``), oldest first."""
        answer = await self.call("GET", f"/v1/fine_tuning/jobs/{job_id}/events?limit=100")
        return [e for e in reversed(answer.json()["data"]) if code in ("", e["code"])]

    async def event_codes(self, job_id: str) -> list[str]:
        """Return the codes of the job's last 100 events, oldest first."""
        return [event["code"] for event in await self.events(job_id)]


@asynccontextmanager
async def open_world(
    engine: AsyncEngine,
    url: str,
    clock: Clock,
    table: Mapping[Offering, Price] = TABLE,
    store: MemoryStore | None = None,
) -> AsyncIterator[World]:
    """Yield a world with one project, one key and the tiny model staged.

    Args:
        engine: Engine of an empty, migrated database.
        url: URL of this database.
        clock: Clock of the service.
        table: Offerings with their prices.
        store: Blob storage; a new one in memory where it is None.
    """
    store, listener = store or MemoryStore(), Listener(driver_url(url))
    await stage(store, MODEL)
    async with engine.begin() as conn:
        key = await keys.create(conn, "tests", "tests", clock(), scope=Scope.OPERATOR)
    cloud = FakeCloud(now=clock)
    inside = parts(engine, store, listener, clock, table)
    world_parts = replace(inside, cloud=cloud, operator_project="tests")
    async with client(make_app(world_parts)) as http:
        yield World(
            engine=engine,
            clock=clock,
            parts=world_parts,
            http=http,
            listener=listener,
            cloud=cloud,
            store=store,
            key=key,
            pace=AttemptTiming(),
        )


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends this key."""
    return {"authorization": f"Bearer {key}"}


def client(app: FastAPI) -> httpx.AsyncClient:
    """Return a client of the app in this process; exceptions become a 500, as from a server."""
    transport = httpx.ASGITransport(app=Documented(app), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


def parts(
    engine: AsyncEngine,
    store: MemoryStore,
    listener: Listener,
    clock: Clock,
    table: Mapping[Offering, Price] = TABLE,
) -> Parts:
    """Return the parts that the API needs."""
    return Parts(
        engine=engine,
        store=store,
        prices=FixedPrices(table),
        preflights=Preflights(engine=engine, store=store, checker=InlineChecker(), now=clock),
        listener=listener,
        granter=Granter(engine=engine, store=store, lifetime=timedelta(hours=24)),
        plan_defaults=PlanDefaults(
            offerings=tuple(table),
            hazard_per_hour=0.05,
            recovery_seconds=600.0,
            accelerator="cpu",
            processes_per_node=1,
            cpu_flops=5e9,
            is_emulated=True,
        ),
        secret=SECRET,
        outage=timedelta(minutes=30),
        now=clock,
    )


def preparation(parts: Parts) -> Preparation:
    """Return the preparation of new jobs, as main creates it."""
    return Preparation(
        engine=parts.engine,
        store=parts.store,
        preflights=parts.preflights,
        replan=partial(submissions.replan_job, parts),
        now=parts.now,
    )


async def stage(
    store: BlobStore,
    name: str,
    config: dict[str, Any] = TINY,
    tokenizer: Mapping[str, bytes] | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write a base model to where the service looks for it."""
    container = models.container(name)
    await store.create_container(container)
    files = []
    weights = {"model.safetensors": f"{name}/model.safetensors".encode()}
    config_file = {"config.json": json.dumps(config).encode()}
    defaults = config_file | weights | dict(tokenizer or tokenizer_files())
    contents = {
        file: defaults.get(file, f"{name}/{file}".encode()) for file in names or sorted(defaults)
    }
    for file, data in contents.items():
        await store.write(container, f"main-1/{file}", data)
        digest = hashlib.sha256(data).hexdigest()
        files.append({"name": file, "size": len(data), "sha256": digest})
    head = {"name": name, "revision": "main-1", "files": files, "config": config}
    await store.write(container, "HEAD", json.dumps(head).encode())
