"""Jobs whose checkpoints and model lie in Blob, and the reconcilers of what lies there."""

from dataclasses import replace

from service.domain.storage.access_tiers import StorageAccount, TieredBlob
from service.operations.storage.tiers import Outside
from service.pricing.fixed import FixedPrices
from service.reconciler.sweeps.storage_cost import StorageMeters
from service.reconciler.sweeps.tiers import TierMoves
from service.storage.store import BlobStore
from tests.integration.sealed import seal
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, train
from tests.world import World
from trainer.contract import NodePhase

SHARD = bytes(200 * 1024)  # large enough to be moved
FILES = {"model.safetensors": SHARD, "config.json": b"{}"}
STEPS = (2, 4, 6)


async def training(
    world: World, *, steps: tuple[int, ...] = STEPS
) -> tuple[str, list[ScriptedNode], int]:
    """A job that trains, with a committed checkpoint of each of ``steps``."""
    name = str((await world.submit())["id"])
    nodes = await boot(world, name)
    number = await train(world, nodes, step=1)
    for step in steps:
        entry = committed(step, number)
        digest = await put(world.store, name, entry.path)
        entry = replace(entry, manifest_sha256=digest)
        await commit(world, name, entry)
        await nodes[0].say(NodePhase.RUNNING, number, step=step, committed=(entry,))
        await world.tick()
    return name, nodes, number


async def finished(world: World) -> str:
    """A job that is over, with checkpoints and a model."""
    name, nodes, number = await training(world)
    entry = committed(10, number, "final")
    digest = await put(world.store, name, entry.path)
    await commit(world, name, replace(entry, manifest_sha256=digest))
    for node in nodes:
        await node.say(NodePhase.FINISHED, number, step=10)
    await world.tick(2)
    assert (await world.job(name))["status"] == "succeeded"
    return name


async def put(store: BlobStore, container: str, path: str) -> str:
    """Files with their manifest; its SHA-256."""
    return await seal(store, container, path, FILES)


def moves(world: World) -> TierMoves:
    """As main makes it."""
    return TierMoves(engine=world.engine, store=world.store, now=world.clock)


def meters(world: World, prices: FixedPrices | None = None) -> StorageMeters:
    """As main makes it."""
    outside = Outside(
        store=world.store, prices=prices or FixedPrices({}), account=StorageAccount(region="eastus")
    )
    return StorageMeters(engine=world.engine, outside=outside, now=world.clock)


async def tiers(store: BlobStore, container: str, prefix: str) -> dict[str, TieredBlob]:
    """What lies there, by file name."""
    found = await store.list_stored(container, prefix)
    return {blob.name.rpartition("/")[2]: blob for blob in found}
