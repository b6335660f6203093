"""Jobs whose checkpoints and model lie in Blob, and the reconcilers of what lies there."""

from dataclasses import replace

from service.domain.storage.access_tiers import StorageAccount, TieredBlob
from service.operations.storage.tiers import StorageServices
from service.pricing.fixed import FixedPrices
from service.reconciler.sweeps.storage_cost import StorageMeters
from service.reconciler.sweeps.tiers import TierMoves
from service.storage.store import BlobStore
from tests.integration.manifests import seal
from tests.nodes.scripted_node import ScriptedNode, commit, committed, say_all, start_training
from tests.world import World
from trainer.contract import NodePhase

SHARD = bytes(200 * 1024)  # large enough to be moved
FILES = {"model.safetensors": SHARD, "config.json": b"{}"}
STEPS = (2, 4, 6)


async def start_with_checkpoints(
    world: World, *, steps: tuple[int, ...] = STEPS
) -> tuple[str, list[ScriptedNode], int]:
    """Return a job that trains, with a committed checkpoint of each of ``steps``."""
    name, nodes, number = await start_training(world)
    for step in steps:
        entry = committed(step, number)
        digest = await put_files(world.store, name, entry.path)
        entry = replace(entry, manifest_sha256=digest)
        await commit(world, name, entry)
        await nodes[0].say(NodePhase.RUNNING, number, step=step, committed=(entry,))
        await world.tick()
    return name, nodes, number


async def finish_job(world: World) -> str:
    """Return a job that is over, with checkpoints and a model."""
    name, nodes, number = await start_with_checkpoints(world)
    entry = committed(10, number, "final")
    digest = await put_files(world.store, name, entry.path)
    await commit(world, name, replace(entry, manifest_sha256=digest))
    await say_all(nodes, NodePhase.FINISHED, number, step=10)
    await world.tick(2)
    assert (await world.job(name))["status"] == "succeeded"
    return name


async def put_files(store: BlobStore, container: str, path: str) -> str:
    """Files with their manifest; its SHA-256."""
    return await seal(store, container, path, FILES)


def make_moves(world: World) -> TierMoves:
    """As main makes it."""
    return TierMoves(engine=world.engine, store=world.store, now=world.clock)


def make_meters(world: World, prices: FixedPrices | None = None) -> StorageMeters:
    """As main makes it."""
    outside = StorageServices(
        store=world.store, prices=prices or FixedPrices({}), account=StorageAccount(region="eastus")
    )
    return StorageMeters(engine=world.engine, storage=outside, now=world.clock)


async def list_tiers(store: BlobStore, container: str, prefix: str) -> dict[str, TieredBlob]:
    """Return what lies there, by file name."""
    blobs = await store.list_stored(container, prefix)
    return {blob.name.rpartition("/")[2]: blob for blob in blobs}
