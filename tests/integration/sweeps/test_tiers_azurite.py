"""A whole move on Microsoft's own Blob emulator and a real PostgreSQL, killed on its way."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs import events
from service.db.money import storage_cost
from service.db.storage import tier_moves as tiers
from service.domain.storage.access_tiers import (
    AccessTier,
    ArchivePriority,
    Presence,
    StorageAccount,
    folder_presence,
)
from service.operations.storage import tier_moves
from service.operations.storage import tiers as operation
from service.operations.storage.tier_moves import MoveRequest
from service.operations.storage.tiers import FolderInspection, StorageServices
from service.pricing.fixed import FixedPrices
from service.reconciler.sweeps.tiers import TierMoves
from service.storage.azure import AzureBlobStore
from service.storage.store import BlobArchived
from tests.azurite import Azurite
from tests.clock import Clock
from tests.integration.db.rows import add_job
from tests.integration.stored_jobs import put_files

PATH = "models/step-00000010-00000001"
RESULT = {"path": PATH}


class Killed(BaseException):
    """The process is no more."""


class DyingStore(AzureBlobStore):
    """The process dies after so many orders."""

    orders_left = 1

    async def set_tier(self, *order: Any) -> None:  # noqa: ANN401 - as the base class
        if not self.orders_left:
            raise Killed
        self.orders_left -= 1
        await super().set_tier(*order)


@pytest.fixture
async def store(azurite: Azurite) -> AsyncIterator[DyingStore]:
    dying_store = DyingStore(azurite.connection_string)
    yield dying_store
    await dying_store.close()


@pytest.fixture
async def job(engine: AsyncEngine, store: DyingStore, clock: Clock) -> str:
    """Return a job that is over and has a model of three large files and two small ones."""
    name = f"ftjob-{uuid4().hex}"
    ended_values = {"state": "succeeded", "finished_at": clock(), "result": RESULT}
    async with engine.begin() as conn:
        await add_job(conn, clock(), id=name, **ended_values)
        await storage_cost.start_metering(conn, name, clock())
    await store.create_container(name)
    await put_files(store, name, PATH)
    for number in (2, 3):
        await store.write(name, f"{PATH}/model-{number}.safetensors", bytes(200 * 1024))
    return name


async def inspect_model(engine: AsyncEngine, store: DyingStore, job: str) -> FolderInspection:
    return await operation.inspect_folder(engine, outside(store), f"p-{job}", job, None)


async def request_move(
    engine: AsyncEngine, store: DyingStore, job: str, tier: AccessTier, clock: Clock
) -> None:
    move = MoveRequest(
        project_id=f"p-{job}",
        job_id=job,
        checkpoint_id=None,
        tier=tier,
        priority=ArchivePriority.STANDARD,
    )
    await tier_moves.request_move(engine, outside(store), move, clock)


def outside(store: DyingStore) -> StorageServices:
    return StorageServices(store=store, prices=FixedPrices({}), account=StorageAccount())


async def test_a_model_goes_to_the_archive_and_comes_back_whole(
    engine: AsyncEngine, store: DyingStore, job: str, clock: Clock
) -> None:
    moves = TierMoves(engine=engine, store=store, now=clock)
    before = {b.name: await store.read(job, b.name) for b in await store.list_stored(job)}

    await request_move(engine, store, job, AccessTier.ARCHIVE, clock)
    with pytest.raises(Killed):
        await moves.run_once()
    blobs = await store.list_stored(job, PATH)
    store.orders_left = 10
    assert await moves.run_once() == 0  # the lease of the dead lies still
    clock.advance(seconds=10)
    while await moves.run_once():
        pass
    inspection = await inspect_model(engine, store, job)

    assert sum(b.tier is AccessTier.ARCHIVE for b in blobs) == 1
    assert store.orders_left == 10 - 2  # nothing was ordered twice
    assert {
        b.name.rpartition("/")[2]: b.tier for b in inspection.blobs if b.tier is AccessTier.HOT
    }.keys() == {"config.json", "manifest.json"}
    with pytest.raises(BlobArchived):
        await store.read(job, f"{PATH}/model-2.safetensors")

    store.orders_left = 10
    await request_move(engine, store, job, AccessTier.HOT, clock)
    while await moves.run_once():
        pass

    assert folder_presence(await store.list_stored(job)) is Presence.ONLINE
    assert before == {n: await store.read(job, n) for n in before}  # ETags too: manifests hold
    async with engine.connect() as conn:
        assert await tiers.open_of(conn, job) == {}
        recorded = await events.newest(conn, job, after=None, limit=10) or []
    assert [e.code for e in recorded][::-1] == [
        "storage.tier_asked",
        "storage.tier_changed",
        "storage.tier_asked",
        "storage.rehydrated",
    ]
